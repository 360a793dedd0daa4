"""What changes the disk: exchange, rename, and putting back what was displaced."""
