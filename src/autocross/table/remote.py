"""Parquet files in object stores and on other machines, by any protocol that fsspec knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any

from autocross.errors import FileError, MissingLibraryError

MAGIC = b"PAR1"


@dataclass(frozen=True)
class Remote:
    """A file or folder at a URL, with those methods of a Path that reading rows needs."""

    url: str

    @cached_property
    def store(self) -> tuple[Any, str]:
        """The file system and the path in it."""
        try:
            import fsspec
        except ImportError:
            raise MissingLibraryError(
                f"Reading {self.url!r} needs fsspec. Install it with: pip install fsspec, or give a path."
            ) from None
        try:
            return fsspec.core.url_to_fs(self.url)  # type: ignore[no-any-return]
        except (ImportError, ValueError) as error:
            raise FileError(f"Cannot reach {self.url!r}: {error}. Install what its protocol needs, or give a path.") from error

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return "." + self.name.rpartition(".")[2]

    def exists(self) -> bool:
        store, path = self.store
        return bool(store.exists(path))

    def is_dir(self) -> bool:
        store, path = self.store
        return bool(store.isdir(path))

    def iterdir(self) -> Iterator[Remote]:
        store, path = self.store
        return (Remote(store.unstrip_protocol(entry)) for entry in store.ls(path, detail=False))

    def whole(self) -> BytesIO:
        """The file's bytes."""
        store, path = self.store
        return BytesIO(store.cat_file(path))

    @property
    def n_bytes(self) -> int:
        store, path = self.store
        return int(store.size(path))

    def footer(self) -> BytesIO:
        """What a Parquet file says about its rows and columns, as a file without rows. It is at the end of the file, so no row is
        fetched."""
        store, path = self.store
        n = int.from_bytes(store.cat_file(path, start=max(0, self.n_bytes - 8))[:4], "little")
        return BytesIO(MAGIC + store.cat_file(path, start=max(0, self.n_bytes - 8 - n)))

    def __lt__(self, other: Remote) -> bool:
        return self.url < other.url
