"""Numba loops over arrays. They allocate nothing and start no threads.

``kernel`` compiles a kernel, and ``part`` compiles a function that kernels share; nothing else compiles. Kernels release the GIL,
so an engine may run them in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])


_compiling = event.TimingListener()  # type: ignore[no-untyped-call]
event.register("numba:compile", _compiling)  # type: ignore[no-untyped-call]


def seconds_compiling() -> float:
    """Seconds that this process has spent compiling kernels so far."""
    return float(_compiling.duration) if _compiling.done else 0.0


def kernel(function: F) -> F:
    """Compile on the first call. The machine code is kept on disk, if there is a writable directory for it."""
    return _compile(function)


def part(function: F) -> F:
    """Compile into every kernel that calls it. As a real call, passing arrays might take longer than the work."""
    return _compile(function, forceinline=True)


def _compile(function: F, forceinline: bool = False) -> F:
    try:
        compiled = njit(nogil=True, cache=True, error_model="numpy", forceinline=forceinline)(function)
    except RuntimeError:  # neither the package's nor the user's cache directory is writable
        compiled = njit(nogil=True, error_model="numpy", forceinline=forceinline)(function)
    return cast(F, compiled)
