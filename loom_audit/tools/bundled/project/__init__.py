"""The project's own programs: tests, formatters, package installers."""
