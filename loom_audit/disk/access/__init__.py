"""One directory as it is on disk: its paths, opened so that nothing escapes."""
