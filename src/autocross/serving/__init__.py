"""Bundle -> scores. Starts without search, scikit-learn or a frame library; of Numba it needs one compiled call, or none."""
