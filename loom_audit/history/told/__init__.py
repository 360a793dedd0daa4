"""Puts on record what other programs report: calls of agents, by their hooks or in transcripts."""
