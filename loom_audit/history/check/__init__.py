"""Whether a whole log is what was recorded."""
