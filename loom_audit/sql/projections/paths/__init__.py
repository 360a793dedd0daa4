"""How paths and what was at them are stored: numbers of paths, packed states, steps of a path."""
