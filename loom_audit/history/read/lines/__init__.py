"""Who wrote each line of a file, and what a set of calls changed on balance, by the log itself."""
