"""The filesystem: the workspace, the change index, large blobs and OS locks."""
