"""Trackers: one class for each family of Python objects."""
