"""Contents: how they are encoded, in rows and in files beside the database."""
