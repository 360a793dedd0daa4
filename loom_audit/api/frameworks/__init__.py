"""A session's tools as agent frameworks take them, each of which is imported when asked for."""
