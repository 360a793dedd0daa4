"""What the commands share: their options, what they look up, and how they print and end."""
