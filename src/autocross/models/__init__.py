"""Codes -> log-odds."""
