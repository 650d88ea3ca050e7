"""The models of a server: where they are, which versions there are, and how a new file takes over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import file_digest
from pathlib import Path
from typing import Any, NamedTuple

from autocross.checks import shown
from autocross.errors import AutoCrossError, FileError, OptionError
from autocross.server.limits import Refused
from autocross.server.logs import Log
from autocross.server.metrics import Metrics
from autocross.serving.scorer import Scorer, load

NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
DIGITS = 12  # of a hash that is a version
TRIES = 5  # to load a file that changes meanwhile

Stamp = tuple[int, int, int]


class Source(NamedTuple):
    """A model as it is given on the command line. Without a version, the hash of the file is the version."""

    name: str
    version: str | None
    path: Path


def source_of(text: str) -> Source:
    """Read PATH, NAME=PATH or NAME:VERSION=PATH.

    >>> source_of("shop:7=models/shop.acx")
    Source(name='shop', version='7', path=PosixPath('models/shop.acx'))
    >>> source_of("models/shop.acx").name
    'shop'
    """
    label, sign, path = text.partition("=")
    if not sign or Path(text).exists():
        label, path = Path(text).stem, text
        name, version = label, ""
    else:
        name, _, version = label.partition(":")
    for part in (name, *([version] if version else [])):
        if not NAME.fullmatch(part):
            raise OptionError(
                f"{shown(part)} cannot be part of an address. Name the model with letters, digits, dots and dashes: NAME=PATH."
            )
    return Source(name, version or None, Path(path))


@dataclass(frozen=True)
class Loaded:
    """A model that is served. It is never changed: a new file gives a new one, and requests that have begun keep theirs."""

    name: str
    version: str
    hash: str
    scorer: Scorer = field(repr=False)
    stamp: Stamp

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What is told about the model. No value of a row is in it."""
        model = self.scorer.model
        about, schema = model.about, model.producer.encoder.schema
        return {
            "name": self.name,
            "version": self.version,
            "hash": self.hash,
            "target": about.target,
            "classes": list(about.classes),
            "positive": about.classes[1],
            "n_rows": about.n_rows,
            "metric": about.metric,
            "validation_score": about.score,
            "fields": [{"name": one.name, "kind": one.kind, "stored": one.stored} for one in schema if one.kind != "ignore"],
            "ignored": [one.name for one in schema if one.kind == "ignore"],
            "crosses": [{**asdict(cross), "order": cross.order} for cross in about.crosses],
        }

    @property
    def labels(self) -> dict[str, Any]:
        """The labels of the model among the metrics."""
        return {"model": self.name, "version": self.version, "hash": self.hash}


def stamp_of(path: Path) -> Stamp:
    """What changes when a file is replaced or written."""
    try:
        facts = path.stat()
    except OSError as error:
        raise FileError(f"Cannot read {str(path)!r}: {error.strerror}. Give the path of a saved model.") from None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def load_source(source: Source) -> Loaded:
    """Load a model with all that answers need, so that nothing more is read from the file later."""
    for _ in range(TRIES):
        stamp = stamp_of(source.path)
        try:
            with source.path.open("rb") as stream:
                digest = file_digest(stream, "sha256").hexdigest()
            scorer = load(source.path)
            scorer.explain({})  # imports and reads all that an answer needs
        except (AutoCrossError, OSError) as error:
            if stamp_of(source.path) == stamp:
                raise error if isinstance(error, AutoCrossError) else FileError(f"Cannot read {str(source.path)!r}.") from error
            continue
        if stamp_of(source.path) == stamp:
            return Loaded(source.name, source.version or digest[:DIGITS], digest, scorer, stamp)
    raise FileError(
        f"Cannot load {str(source.path)!r}: it changes all the time. Write it elsewhere, and rename it when it is complete."
    )


class Shelf:
    """The models by name and version. The first name is the default, and of several versions the last one given."""

    def __init__(self, sources: Sequence[Source], log: Log, metrics: Metrics) -> None:
        self.sources, self.log, self.metrics = tuple(sources), log, metrics
        self.seen: dict[Source, Stamp | None] = {}  # what could not be loaded is not tried again until it changes
        self.put([load_source(source) for source in sources])
        if sum(len(versions) for versions in self.models.values()) < len(sources):
            raise OptionError("Two of the models have one name and one version. Give others: NAME=PATH or NAME:VERSION=PATH.")
        for one in self.all:
            log.info("loaded", model=one.name, version=one.version, hash=one.hash)

    def put(self, loaded: Sequence[Loaded]) -> None:
        """Serve these from now on. Who has found a model keeps it, and others find the new one."""
        models: dict[str, dict[str, Loaded]] = {}
        for one in loaded:
            models.setdefault(one.name, {})[one.version] = one
        newest = {name: list(versions.values())[-1] for name, versions in models.items()}
        newest[""] = newest[self.sources[0].name]
        self.loaded, self.models, self.newest = tuple(loaded), models, newest

    @property
    def all(self) -> list[Loaded]:
        return [one for versions in self.models.values() for one in versions.values()]

    def find(self, name: str = "", version: str | None = None) -> Loaded:
        """The model of a name, or the default one, in a version, or the newest one."""
        try:
            return self.newest[name] if version is None else self.models[name][version]
        except KeyError:
            known = ", ".join(f"{one.name} {one.version}" for one in self.all)
            wanted = shown(name) if version is None else f"{shown(name)} in version {shown(version)}"
            raise Refused(404, f"There is no model {wanted}. There are: {known}.") from None

    def reload(self, asked: bool = False) -> bool:
        """Load the files that have changed, or all of them if one asks. A file that cannot be loaded leaves the model as it is."""
        loaded, changed = [*self.loaded], False
        for place, (source, old) in enumerate(zip(self.sources, self.loaded, strict=True)):
            try:
                stamp: Stamp | None = stamp_of(source.path)
            except FileError:
                stamp = None
            if not asked and stamp == self.seen.get(source, old.stamp):
                continue
            self.seen[source] = stamp
            try:
                new = load_source(source)
            except Exception as error:
                self.metrics.reloaded(source.name, "failed")
                self.log.error("reload_failed", model=source.name, kept=old.version, why=str(error))
                continue
            self.seen[source] = new.stamp
            loaded[place], changed = new, True
            self.put(loaded)
            self.metrics.reloaded(source.name, "loaded")
            self.log.info("reloaded", model=new.name, version=new.version, hash=new.hash, before=old.hash)
        return changed
