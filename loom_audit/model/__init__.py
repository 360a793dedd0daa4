"""What there is: events, files, plans and the pure functions over them."""
