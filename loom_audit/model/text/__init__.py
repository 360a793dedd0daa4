"""Lines, differences and merges of texts; what is shown of them."""
