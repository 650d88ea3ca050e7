"""Bundles of every format, and the script that makes them."""
