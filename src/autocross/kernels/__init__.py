"""Numba loops: arrays in, arrays out, nothing allocated, no thread of their own.

``kernel`` is the one way to compile. Kernels release the GIL, so an engine may run them in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile on first call; keep the machine code on disk where a directory for it can be written."""
    try:
        compiled = njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError:  # neither the package's nor the user's cache directory is writable
        compiled = njit(nogil=True, error_model="numpy")(function)
    return cast(F, compiled)
