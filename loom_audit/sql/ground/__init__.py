"""What all the rest stands on: the driver, its connections, statements, and what columns hold."""
