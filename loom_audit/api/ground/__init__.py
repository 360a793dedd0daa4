"""What stores, workspaces and sessions stand on: a session on record, rules, gates."""
