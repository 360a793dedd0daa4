"""What is readable of a damaged store, got out of it."""
