"""The tables that follow from the log: written with it, read, checked and made anew."""
