"""Chosen fields and crosses -> fast transform, saved in one file."""
