"""Search by regular expression, by definition and by words."""
