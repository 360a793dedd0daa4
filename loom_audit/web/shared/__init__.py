"""What several pages share: what a route is given, what an answer is made of, how much fits."""
