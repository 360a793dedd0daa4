"""What an event is stored as: envelope, payloads, commitments, leaves."""
