"""The loop-level intermediate representation."""
