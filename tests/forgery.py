"""Model files taken apart and put together again, their checksums right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from autocross.producer import bundle
from autocross.producer.background import PREFIX, checksum

Manifest = dict[str, Any]
Arrays = dict[str, np.ndarray[Any, Any]]


def parts(path: Path) -> tuple[Manifest, Arrays]:
    """The manifest and the arrays of a file in good order."""
    with safe_open(str(path), framework="numpy") as stored:
        return json.loads(stored.metadata()["autocross"]), {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118


def forge(path: Path, manifest: Manifest, arrays: Arrays) -> Path:
    """Write a file whose checksum fits: it protects from damage, not from an attacker."""
    manifest = {key: value for key, value in manifest.items() if key != "checksum"}
    if isinstance(later := manifest.get("background"), dict):
        own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
        manifest["background"] = {**later, "checksum": checksum(own)}
    manifest["checksum"] = bundle.checksum(manifest, arrays)
    path.write_bytes(to_bytes(arrays, metadata={"autocross": json.dumps(manifest)}))
    return path
