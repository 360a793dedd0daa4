"""What is on disk, what of it changed since it was recorded, and who may have changed it."""
