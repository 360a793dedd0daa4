"""The workspace's git repository: looked at, committed to, pushed."""
