"""Plans that take back: shown, asked about, carried out; as a patch; versions put back."""
