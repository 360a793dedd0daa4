"""Tools that tell an agent what is on record, and take back what it did itself."""
