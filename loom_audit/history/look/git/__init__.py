"""What changed of the git repository of a workspace, and the objects that are kept of it."""
