"""What is on record of a git repository: its state, what changed of it, and that in words."""
