"""What is done with the log; knows ports only."""
