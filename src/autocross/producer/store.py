"""A file of JSON facts and named arrays, in the format of safetensors.

Reading it runs no code. Checksums reveal a damaged file. No array is read before its type and size are checked, so a forged file
cannot fill the memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from autocross.checks import require
from autocross.errors import AutoCrossError, BundleError, FileError
from autocross.producer.container import Container, open_file
from autocross.table.atomic import replace_file


def write(path: Path, key: str, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write facts and arrays. An existing file of that name stays until the new one is complete. ``key`` identifies the kind of
    file."""
    from safetensors.numpy import save as to_bytes

    content: dict[str, Any] = {"facts": facts, "arrays": {name: hash_of(array.tobytes()) for name, array in arrays.items()}}
    content["checksum"] = hash_of(json.dumps(content).encode())
    data = to_bytes(dict(arrays), metadata={key: json.dumps(content)})
    replace_file(path, lambda stream: stream.write(data))


def hash_of(data: bytes) -> str:
    return xxhash.xxh64(data).hexdigest()


class Stored:
    """An open file: its facts, and its arrays, which are read when they are asked for."""

    def __init__(self, container: Container) -> None:
        content = container.manifest
        require(isinstance(content, dict) and set(content) == {"facts", "arrays", "checksum"}, "it has no proper facts")
        checksum = content.pop("checksum")
        require(checksum == hash_of(json.dumps(content).encode()), "its checksum does not fit its facts")
        self.container = container
        self.facts, self.checksums = content["facts"], content["arrays"]
        require(isinstance(self.facts, dict) and isinstance(self.checksums, dict), "it has no proper facts")
        require(set(self.checksums) == set(container.entries), "its arrays are not those that its facts name")

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array; its content is not read."""
        require(name in self.checksums, f"array {name!r} is not in it")
        return self.container.entries[name].shape

    def array(self, name: str, kind: type[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """An array that must be of this kind and shape."""
        require(self.shape(name) == shape, f"array {name!r} has the wrong shape")
        require(self.container.entries[name].kind == np.dtype(kind), f"array {name!r} is of the wrong kind")
        values = self.container.array(name, f"array {name!r}", may_be_zero=True)
        require(hash_of(values.tobytes()) == self.checksums[name], f"array {name!r} does not fit its checksum")
        return values


@contextmanager
def opened(path: Path, key: str, kind: str) -> Iterator[Stored]:
    """Open a file for reading. Anything wrong with its content raises a BundleError, whether it is found here or by the caller."""
    with open_file(path) as stream:
        try:
            yield Stored(Container(stream, key, kind))
        except AutoCrossError:
            raise
        except OSError as error:
            raise FileError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from error
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, OverflowError, MemoryError) as error:
            raise BundleError(f"its content is damaged ({type(error).__name__}: {error}). Save or copy it again.") from error
