"""git, asked on hostile ground: where a repository is, what lies in it, and how it is run."""
