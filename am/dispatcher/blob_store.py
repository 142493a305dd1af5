"""BlobStore: payloads too large for a message, kept in a directory under their SHA-256.

Owner: blocking; endpoints call it through `run_blocking`. A blob is written whole or not at all and never
changed.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from yarrow.runtime.common.errors import YarrowError

_KEY = re.compile(r"[0-9a-f]{64}")


class BlobNotFoundError(YarrowError):
    """There is no blob under the key."""


class BlobStore:
    """Blobs of one cluster."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """`directory` is made when the first blob comes."""
        self._directory = Path(directory)

    def put(self, data: bytes) -> str:
        """Stores `data`; its key. The same data has the same key and is stored once."""
        key = hashlib.sha256(data).hexdigest()
        path = self._directory / key
        if not path.exists():
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = self._directory / f"{key}.{os.getpid()}.part"
            part.write_bytes(data)
            part.replace(path)
        return key

    def get(self, key: str) -> bytes:
        """The whole blob; BlobNotFoundError when there is none."""
        return self.read(key, 0, None)[0]

    def read(self, key: str, offset: int, length: int | None) -> tuple[bytes, int]:
        """Up to `length` bytes from `offset`, and the size of the whole blob."""
        path = self.path(key)
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(offset)
                return file.read(-1 if length is None else length), size
        except FileNotFoundError:
            raise BlobNotFoundError(
                f"no blob {key} in {self._directory}: was it uploaded to this cluster?"
            ) from None

    def path(self, key: str) -> Path:
        """Where the blob of that key is; BlobNotFoundError when `key` is no key."""
        if _KEY.fullmatch(key) is None:
            raise BlobNotFoundError(f"{key!r} is no blob key: expected 64 hexadecimal digits")
        return self._directory / key

    def remove(self, key: str) -> None:
        """Forgets a blob; no effect when there is none."""
        self.path(key).unlink(missing_ok=True)
