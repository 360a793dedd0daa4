"""What is on disk, and what the kernel tells of it."""
