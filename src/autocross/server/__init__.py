"""A server: saved models over HTTP."""
