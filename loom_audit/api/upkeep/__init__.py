"""Looking after a store and its folders: checks, what drifted, was moved, lost or broke."""
