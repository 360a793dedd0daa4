"""What calls took back, as it is in effect, and which steps of a file are in effect by that."""
