"""What other programs' hooks and transcripts say, read as reports: pure translators."""
