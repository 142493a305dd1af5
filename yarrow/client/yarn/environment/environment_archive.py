"""Writes an environment as one .tar.gz: its files, compiled modules beside their sources, and the `python3` to start.

Owner: the client's thread and its own compressing threads. Equal files make equal bytes, so that the
archive's SHA-256 names its content. Must not decide which files belong to an environment.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import marshal
import os
import tarfile
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

from yarrow.client.yarn.environment.environment_files import LIBRARIES, PACKAGES, PYTHON_NAME, EnvironmentFile
from yarrow.client.yarn.environment.environment_start import EDITABLE_FOLDER

#: Level 6 makes it a tenth smaller for three times the work (290 MB).
COMPRESSION_LEVEL = 1
_BLOCK = 4 << 20
#: 1980-01-01: the first moment that every archive format knows.
_TIME = 315_532_800
#: PEP 552: the source is not checked, whatever times and paths unpacking gave it.
_UNCHECKED_HASH = (1).to_bytes(4, "little")
_PYC_HEADER = 16

#: A script before the interpreter: it finds its libraries wherever the environment was unpacked, sees no
#: packages of the node, and does not change the folder that other applications share.
_START = f"""#!/bin/sh
here=${{0%/*}}
case $here in /*) ;; *) here=$PWD/$here ;; esac
here=${{here%/bin}}
unset PYTHONHOME
export PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH="$here/{LIBRARIES}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/bin/{PYTHON_NAME}" "$@"
"""
START_SCRIPTS = ("bin/python3", "bin/python")
_UP = "/".join(".." for _ in PACKAGES.split("/")) + "/.."
_GENERATED = {
    **{name: _START for name in START_SCRIPTS},
    f"{PACKAGES}/yarrow-editable.pth": f"{_UP}/{EDITABLE_FOLDER}\n",
}


@dataclass(frozen=True, slots=True)
class PackedArchive:
    """The result of `write_archive`."""

    #: SHA-256 of the archive's bytes.
    digest: str
    size: int


def write_archive(
    files: Iterable[EnvironmentFile], output: BinaryIO, *, starts: bool, level: int = COMPRESSION_LEVEL
) -> PackedArchive:
    """Packs `files`, and with `starts` the interpreter's start script. Raises OSError for an unreadable file."""
    compressed = _CompressingWriter(output, level)
    with tarfile.open(fileobj=compressed, mode="w|", format=tarfile.GNU_FORMAT, bufsize=_BLOCK) as archive:
        for name, text in _GENERATED.items() if starts else ():
            _add(archive, name, text.encode(), executable=name in START_SCRIPTS)
        for file in files:
            with open(file.source, "rb") as source:
                content = source.read()
            _add(archive, file.target, content, file.executable)
            if file.target.endswith(".py"):
                compiled = _compiled(file, content)
                if compiled is not None:
                    _add(archive, _cache_name(file.target), compiled, executable=False)
    compressed.finish()
    return PackedArchive(compressed.digest(), compressed.size)


def _add(archive: tarfile.TarFile, name: str, content: bytes, executable: bool) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o755 if executable else 0o644
    entry.mtime = _TIME
    archive.addfile(entry, io.BytesIO(content))


def _cache_name(target: str) -> str:
    return importlib.util.cache_from_source(target, optimization="")


def _compiled(file: EnvironmentFile, source: bytes) -> bytes | None:
    """The module's compiled code; None for a source that does not compile (templates, other versions)."""
    code = _cached_code(file)
    if code is None:
        try:
            # The name is the unpacked file's, relative to the environment, without a path of this machine.
            module = compile(source, file.target, "exec", dont_inherit=True, optimize=0)
        except (SyntaxError, ValueError):
            return None
        code = marshal.dumps(module)
    header = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + importlib.util.source_hash(source)
    return header + code


def _cached_code(file: EnvironmentFile) -> bytes | None:
    """The interpreter's own cached code, which it would use; an import corrects the source name in it."""
    try:
        with open(importlib.util.cache_from_source(file.source, optimization=""), "rb") as cached:
            stored = cached.read()
    except OSError:
        return None
    valid = (
        stored[:4] == importlib.util.MAGIC_NUMBER
        and stored[4:8] == bytes(4)
        and stored[8:12] == (file.mtime_ns // 1_000_000_000 & 0xFFFFFFFF).to_bytes(4, "little")
        and stored[12:16] == (file.size & 0xFFFFFFFF).to_bytes(4, "little")
    )
    return stored[_PYC_HEADER:] if valid else None


class _CompressingWriter(io.RawIOBase):
    """Compresses several blocks at a time: each block is a gzip member, and every reader joins them."""

    def __init__(self, output: BinaryIO, level: int) -> None:
        super().__init__()
        self._output = output
        self._level = level
        self._hash = hashlib.sha256()
        self._block = bytearray()
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="pack")
        self._waiting: deque[Future[bytes]] = deque()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        self._block += data
        if len(self._block) >= _BLOCK:
            self._compress()
        return len(data)

    def finish(self) -> None:
        """Writes what is left."""
        self._compress()
        while self._waiting:
            self._write_next()
        self._threads.shutdown()

    def digest(self) -> str:
        return self._hash.hexdigest()

    def _compress(self) -> None:
        if self._block:
            block, self._block = bytes(self._block), bytearray()
            self._waiting.append(self._threads.submit(gzip.compress, block, self._level, mtime=0))
        while len(self._waiting) > 2 * (os.cpu_count() or 1):
            self._write_next()

    def _write_next(self) -> None:
        data = self._waiting.popleft().result()
        self._hash.update(data)
        self.size += len(data)
        self._output.write(data)
