"""Programs of the model's own."""
