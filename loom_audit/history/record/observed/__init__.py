"""What changes from outside put on record as it happens, once it rests."""
