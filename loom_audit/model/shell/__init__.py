"""What a shell would be asked to do, read from its text: pure functions."""
