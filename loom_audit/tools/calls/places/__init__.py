"""Where a tool reads and writes: the workspace, and the scratch directory of the session."""
