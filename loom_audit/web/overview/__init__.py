"""Each workspace's first page, and what waits for a person: the queue, the week, the sessions."""
