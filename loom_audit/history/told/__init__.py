"""What other programs report of their calls: hooks, transcripts, imports."""
