"""Copies of the golden snapshots of the job with every kind of state, to be restored or harmed."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from yarrow.runtime.snapshot.handles import CheckpointMetadata
from yarrow.runtime.snapshot.metadata import METADATA_FILE, decode_metadata, encode_metadata

SAVEPOINT = Path(__file__).parent / "all-kinds-version-1"
CHECKPOINT = Path(__file__).parent / "rocksdb-version-1"


def savepoint(folder: Path) -> str:
    """The golden savepoint beside the files of its sink; savepoints may be moved."""
    shutil.copytree(SAVEPOINT, folder, dirs_exist_ok=True)
    return str(folder / "savepoint")


def native_checkpoint(folder: Path) -> str:
    """The golden checkpoint, with the paths of shared files changed to where they are now."""
    shutil.copytree(CHECKPOINT, folder, dirs_exist_ok=True)
    (path,) = (folder / "checkpoints").glob("chk-*")
    metadata = decode_metadata((path / METADATA_FILE).read_bytes(), str(path))
    text = msgspec.json.encode(metadata)
    was = (CHECKPOINT / "written-at").read_text().encode()
    assert was in text
    moved = text.replace(was, str(folder / "checkpoints").encode())
    (path / METADATA_FILE).write_bytes(encode_metadata(msgspec.json.decode(moved, type=CheckpointMetadata)))
    return str(path)
