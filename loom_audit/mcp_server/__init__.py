"""The tools of a workspace for any client of the Model Context Protocol."""
