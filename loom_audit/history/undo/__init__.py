"""Taking back: which calls, what that would do, and doing it."""
