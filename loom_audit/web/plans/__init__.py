"""The pages of plans: what was asked for, and what of it is shown."""
