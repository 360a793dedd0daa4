"""The filesystem: the workspace, the change index, OS locks, and files kept beside the store."""
