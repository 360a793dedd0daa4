"""Who is asked before a call runs, by which rules, and what they are shown."""
