"""Who wrote each line of a file, told from its versions: pure functions of contents."""
