"""Files and folders: read, write, edit, delete, move, list."""
