"""The demonstration: two sessions of an agent on a copy of a real package, really recorded."""
