"""BlobStore: payloads that are too large for a message, stored under their SHA-256 for this master and others.

Owner: blocking; endpoints call it through `run_blocking`. A blob is written whole or not at all, and never
changed. A reader first fetches the blob into this process's own directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from pathlib import Path

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import IdFactory, RandomIdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.whole_files import write_whole

_KEY = re.compile(r"[0-9a-f]{64}")


class BlobNotFoundError(YarrowError):
    """There is no blob under the key."""


class BlobStore:
    """The blobs of one cluster."""

    def __init__(
        self, directory: str | os.PathLike[str], shared: str = "", ids: IdFactory | None = None
    ) -> None:
        """`directory` is made with the first blob. `shared` is a folder of any file system; "" = none."""
        self._directory = Path(directory)
        self._shared = shared
        self._ids = ids or RandomIdFactory()
        self._lock = threading.Lock()
        #: Keys of blobs whose job has not been submitted yet, or is being started.
        self._awaited: set[str] = set()

    def put(self, data: bytes) -> str:
        """Stores `data` so that the next master finds it, and returns its key.

        Equal data has one key and is stored once.
        """
        key = hashlib.sha256(data).hexdigest()
        # Set first: no other thread may remove the blob between the check for it and the answer.
        with self._lock:
            self._awaited.add(key)
        self.put_here(data)
        if self._shared:
            self._upload(key, data)
        return key

    def put_here(self, data: bytes) -> str:
        """Stores `data` for this master alone, and returns its key."""
        key = hashlib.sha256(data).hexdigest()
        if not (self._directory / key).exists():
            self._keep(key, data)
        return key

    def _keep(self, key: str, data: bytes) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self._directory / f"{key}.{os.getpid()}.{threading.get_ident()}.part"
        part.write_bytes(data)
        part.replace(self._directory / key)

    def _upload(self, key: str, data: bytes) -> None:
        target = join(self._shared, key)
        if exists(file_system_for(target), target):
            return
        # Another thread or process may store the same blob meanwhile.
        with contextlib.suppress(FileExistsError):
            write_whole(target, data, self._ids.hex_id()[-8:])

    def get(self, key: str) -> bytes:
        """The whole blob. Raises BlobNotFoundError when there is none."""
        return self.read(key, 0, None)[0]

    def read(self, key: str, offset: int, length: int | None) -> tuple[bytes, int]:
        """Up to `length` bytes from `offset`, and the size of the whole blob."""
        path = self.path(key)
        if not path.exists() and self._shared:
            self._fetch(key)
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(offset)
                return file.read(-1 if length is None else length), size
        except FileNotFoundError:
            raise self._missing(key) from None

    def _fetch(self, key: str) -> None:
        source = join(self._shared, key)
        try:
            with file_system_for(source).open(source) as stream:
                data = stream.read()
        except FileNotFoundError:
            return
        if hashlib.sha256(data).hexdigest() != key:
            raise BlobNotFoundError(f"blob {key} in {self._shared} is damaged: submit the job again")
        self._keep(key, data)

    def require(self, keys: tuple[str, ...]) -> None:
        """Keeps these blobs for a job that is about to run. Raises BlobNotFoundError for a missing blob.

        The blobs are not removed before `expect_no_more`.
        """
        with self._lock:
            self._awaited.update(keys)
        for key in keys:
            there = self.path(key).exists() or (
                self._shared and exists(file_system_for(self._shared), join(self._shared, key))
            )
            if not there:
                raise self._missing(key)

    def expect_no_more(self, keys: tuple[str, ...]) -> None:
        """Allows the removal of these blobs: the jobs that put or required them have their own copies."""
        with self._lock:
            self._awaited.difference_update(keys)

    def path(self, key: str) -> Path:
        """The local path of a blob. Raises BlobNotFoundError when `key` is no key."""
        if _KEY.fullmatch(key) is None:
            raise BlobNotFoundError(f"{key!r} is no blob key: expected 64 hexadecimal digits")
        return self._directory / key

    def place(self, key: str) -> str:
        """Where a blob is stored for all masters, else where for this one; a text for people."""
        return join(self._shared, key) if self._shared else str(self._directory / key)

    def remove(self, key: str) -> None:
        """Removes a blob, unless a job that names it may still come; no effect when there is none."""
        path = self.path(key)
        with self._lock:
            if key in self._awaited:
                return
        path.unlink(missing_ok=True)
        self._remove_shared(key)

    def remove_here(self, key: str) -> None:
        """Removes a blob that `put_here` has stored."""
        self.path(key).unlink(missing_ok=True)

    def keep_here(self, key: str) -> None:
        """Removes the shared copy of a blob that no other master needs. The local copy stays."""
        self.read(key, 0, 0)
        with self._lock:
            self._awaited.discard(key)
        self._remove_shared(key)

    def _remove_shared(self, key: str) -> None:
        if self._shared:
            file_system_for(self._shared).delete(join(self._shared, key))

    def _missing(self, key: str) -> BlobNotFoundError:
        return BlobNotFoundError(
            f"no blob {key} in {self._shared or self._directory}: was it uploaded to this cluster?"
        )
