"""What belongs to this machine: locks, processes, and files kept beside the store."""
