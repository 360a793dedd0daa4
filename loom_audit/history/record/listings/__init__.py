"""Whole listings of what is on disk, from which the log's trees begin."""
