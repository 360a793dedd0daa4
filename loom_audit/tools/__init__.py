"""How agents act: the async edge."""
