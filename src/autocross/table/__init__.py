"""Outside rows -> typed columns."""
