"""The same bench on many nodes at once, and their records in one archive."""
