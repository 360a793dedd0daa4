"""What of git a plan takes back with the files."""
