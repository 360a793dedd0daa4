"""Pages of the public web, web search and the oracle."""
