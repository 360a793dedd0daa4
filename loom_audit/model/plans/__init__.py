"""Which states a path went through, and what taking back would make of it."""
