"""Other programs' agents: connecting them, what their hooks and transcripts tell."""
