"""The tools that come with the package, one room for each family."""
