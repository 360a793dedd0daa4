"""What is stored, unchecked, for verification; projections compared with the log."""
