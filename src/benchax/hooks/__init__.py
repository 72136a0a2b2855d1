"""Runs a program of the user's as it stands, with one of our hooks in its processes."""
