"""Typed columns -> integer codes. Nothing here ever sees the label."""
