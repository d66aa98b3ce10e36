"""Targets and what they are given."""
