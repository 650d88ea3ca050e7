"""Numba loops over arrays. They allocate nothing and start no threads.

``kernel`` compiles a kernel, and ``part`` compiles a function that kernels share; nothing else compiles. Kernels release the GIL,
so an engine may run them in threads. Only those of ``brief`` keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event
from numba.core.registry import cpu_target
from numba.np import linalg

F = TypeVar("F", bound=Callable[..., Any])


def _start() -> None:
    """Let Numba make itself ready, as it does before the first kernel, but without importing SciPy. It does so only to see whether
    linear algebra is there, which no kernel needs; that would take a third of the time. A use of linear algebra looks again."""
    found = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        cpu_target.target_context.refresh()
    finally:
        linalg.ensure_blas = found


_start()

_compiling = event.TimingListener()  # type: ignore[no-untyped-call]
event.register("numba:compile", _compiling)  # type: ignore[no-untyped-call]


def seconds_compiling() -> float:
    """Seconds that this process has spent compiling kernels so far."""
    return float(_compiling.duration) if _compiling.done else 0.0


def kernel(function: F) -> F:
    """Compile on the first call. The machine code is kept on disk, if there is a writable directory for it."""
    return _compile(function)


def brief(function: F) -> F:
    """Compile a kernel that takes about a microsecond. It keeps the GIL: giving it away would take as long as the work, and another
    thread might not give it back for milliseconds."""
    return _compile(function, nogil=False)


def part(function: F) -> F:
    """Compile into every kernel that calls it. As a real call, passing arrays might take longer than the work."""
    return _compile(function, forceinline=True)


def _compile(function: F, nogil: bool = True, forceinline: bool = False) -> F:
    try:
        compiled = njit(nogil=nogil, cache=True, error_model="numpy", forceinline=forceinline)(function)
    except RuntimeError:  # neither the package's nor the user's cache directory is writable
        compiled = njit(nogil=nogil, error_model="numpy", forceinline=forceinline)(function)
    return cast(F, compiled)
