"""A fit, stage by stage: read, encode, tune, search, finish. `fit.py` shows the whole of it."""
