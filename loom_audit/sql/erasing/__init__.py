"""Erasing: what of a log can go without breaking a proof, and every place where it lies."""
