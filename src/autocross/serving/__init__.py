"""Bundle -> scores. Starts without search, scikit-learn, Numba or a frame library."""
