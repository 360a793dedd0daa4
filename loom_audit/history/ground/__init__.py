"""What the rest stands on: a workspace with its log, who appends, what a log proves."""
