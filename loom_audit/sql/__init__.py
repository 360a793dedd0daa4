"""The log, the blobs and the projections in a SQL database."""
