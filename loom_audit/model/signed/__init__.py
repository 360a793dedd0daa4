"""Tree heads under signatures that other programs check: signed notes, heads in them, keys."""
