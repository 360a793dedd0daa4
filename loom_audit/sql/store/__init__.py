"""An open store: appending to its logs, and bringing an older one up to date."""
