"""What people say of calls: answers to questions, holding sessions, recommended rules."""
