"""Every subprocess starts here."""
