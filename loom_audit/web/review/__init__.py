"""Sessions as they are reviewed: what each was asked and did, step by step and call by call."""
