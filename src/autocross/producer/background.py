"""What a model remembers about its training rows, beyond what scoring needs. A file has it in a section of its own.

Loading a model does not read that section. It is read when somebody asks for it, from the same file, and checked by a checksum of
its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from autocross.checks import Facts, is_number, require
from autocross.encoding.column import Arrays
from autocross.errors import BundleError, FileError
from autocross.producer.container import Container, open_file
from autocross.producer.deciles import Deciles
from autocross.producer.draws import Draws

if TYPE_CHECKING:
    from autocross.producer.model import Producer

KEY = "autocross"  # under which the header of a file keeps the manifest
PREFIX = "background."


@dataclass(frozen=True)
class Background:
    """What is known about the training rows.

    ``total`` is the weight of all rows. ``cells`` has, for every shape of the producer, the rows and positives of those cells that
    no single part knows. ``mass`` has sums of row weights, for every code of every term and then for the cells of ``cells``; it is
    None if all rows weigh the same. ``additions`` has the mean of what each addition adds. ``deciles`` says how scores are spread;
    a change of weights without the rows must drop them. ``draws`` says how far the weights may be off, unless the fit had no time
    for it.
    """

    total: float
    cells: tuple[NDArray[np.int64], ...] = ()
    mass: tuple[NDArray[np.float32], ...] | None = None
    additions: tuple[float, ...] = ()
    deciles: Deciles | None = None
    draws: Draws | None = None

    def pack(self, arrays: Arrays, statistics: Iterable[int]) -> Facts:
        """Small facts for the manifest; long ones go into arrays, whose names begin with the prefix."""
        largest = max((int(cells.max(initial=0)) for cells in self.cells), default=0)
        own: Arrays = {"cells": joined(self.cells, (0, 2)).astype(np.int64 if largest >> 32 else np.uint32)}
        if self.mass is not None:
            own["mass"] = joined(self.mass, (0,)).astype(np.float32)
        if self.deciles is not None:
            own |= {"deciles.edges": self.deciles.edges, "deciles.rows": self.deciles.rows}
        draws = {} if self.draws is None else {"draws": self.draws.pack(own, statistics)}
        arrays |= {PREFIX + name: array for name, array in own.items()}
        return {"total": self.total, "additions": list(self.additions), **draws, "checksum": checksum(own)}

    @classmethod
    def unpack(cls, facts: Facts, producer: Producer, stored: dict[str, NDArray[Any]]) -> Background:
        """What was packed, checked against the features of the model."""
        require(is_number(facts["total"]) and facts["total"] > 0, "it has no rows that weigh anything")
        require(all(map(is_number, facts["additions"])), "an addition has no mean")
        n_cells = [len(shape.uncounted) for shape in producer.shapes]
        counts = stored["cells"]
        require(counts.ndim == 2 and counts.shape[1] == 2 and counts.dtype.kind in "iu", "it has no proper counts of cells")
        counts = counts.astype(np.int64)
        require(bool((counts[:, 1] >= 0).all() and (counts[:, 1] <= counts[:, 0]).all()), "it has more positive rows than rows")
        cells = split(counts, n_cells)
        mass = None
        if "mass" in stored:
            proper = stored["mass"].dtype == np.float32 and stored["mass"].ndim == 1 and np.isfinite(stored["mass"]).all()
            require(bool(proper and (stored["mass"] >= 0).all()), "it has rows of no proper weight")
            mass = split(stored["mass"], [*(field.n_codes for field in producer.fields), *n_cells])
        deciles = Deciles.unpack(stored["deciles.edges"], stored["deciles.rows"]) if "deciles.edges" in stored else None
        draws = Draws.unpack(facts["draws"], producer, stored) if "draws" in facts else None
        return cls(float(facts["total"]), cells, mass, tuple(map(float, facts["additions"])), deciles, draws)


def joined(arrays: Sequence[NDArray[Any]], empty: tuple[int, ...]) -> NDArray[Any]:
    """Arrays one after the other; there may be none."""
    return np.concatenate([np.zeros(empty, np.int64), *arrays])


def split(array: NDArray[Any], sizes: Sequence[int]) -> tuple[NDArray[Any], ...]:
    """The arrays that were joined."""
    require(len(array) == sum(sizes), "it remembers rows of other features than it has")
    return tuple(np.split(array, np.cumsum(sizes)[:-1])) if sizes else ()


def checksum(arrays: Arrays, text: str = "") -> str:
    """A hash of a text and of arrays."""
    digest = xxhash.xxh64(text.encode())
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class OnFile:
    """The section of a file that is not read yet. ``checksum`` is that of the whole file."""

    path: Path
    checksum: str
    facts: Facts

    def read(self, producer: Producer) -> Background:
        """Read the section. The file must still be the one that the model was loaded from."""
        here = f"Cannot read what the model remembers about its training rows from {str(self.path)!r}: "
        with open_file(self.path) as stream:
            try:
                stored = Container(stream, KEY)
                if stored.manifest.get("checksum") != self.checksum:
                    raise FileError(f"{here}the file has changed since the model was loaded. Load it again.")
                names = [name for name in stored.entries if name.startswith(PREFIX)]
                arrays = {name.removeprefix(PREFIX): stored.array(name, name, may_be_zero=True) for name in names}
                require(checksum(arrays) == self.facts["checksum"], "its checksum does not fit its content")
                return Background.unpack(self.facts, producer, arrays)
            except BundleError as error:
                raise BundleError(f"{here}{error}") from None
            except FileError:  # which is a ValueError too
                raise
            except OSError as error:
                raise FileError(f"{here}{error.strerror or error}.") from error
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise BundleError(f"{here}its manifest is damaged ({error}). Save or copy it again.") from error
