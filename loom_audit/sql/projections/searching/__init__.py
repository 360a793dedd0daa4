"""Finding by words and by what somebody types of a path."""
