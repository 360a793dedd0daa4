"""The Python face: open a store, attach a directory, record sessions, look and take back."""
