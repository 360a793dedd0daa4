"""A session as people review it: what was asked and said, what it did, and what of it stands."""
