"""JobFiles: the files of one job on a TaskExecutor: a graph too long for a message, and the user's files.

Owner: the TaskExecutor's event loop; disk writes run in its blocking threads. Must not use a name from a job
as a path: files have numbers as names, and workers give them their names.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol

from yarrow.container.protocol.errors import BlobTransferError
from yarrow.runtime.rpc.messages import BlobPart

#: Runs a blocking call in other threads.
RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]


class BlobReader(Protocol):
    """The part of a master's gateway that hands out shipped payloads."""

    async def read_blob(self, key: str, offset: int, length: int) -> BlobPart: ...


class JobFiles:
    """Fetches blobs of one job, each once."""

    def __init__(
        self, gateway: BlobReader, directory: Path, part_bytes: int, run_blocking: RunBlocking
    ) -> None:
        """The first file makes `directory`; `part_bytes` must fit a message."""
        self._gateway = gateway
        self._directory = directory
        self._part_bytes = part_bytes
        self._run_blocking = run_blocking
        self._fetches: dict[str, asyncio.Task[Path]] = {}
        #: The job has ended here: no file may be added any more.
        self.is_closed = False

    async def read(self, key: str) -> bytes:
        """The bytes of a blob with the SHA-256 `key`. Raises BlobTransferError if they differ."""
        data = bytearray()
        while True:
            part = await self._gateway.read_blob(key, len(data), self._part_bytes)
            data += part.data
            if len(data) >= part.total_size:
                break
            if not part.data:
                raise BlobTransferError(
                    f"the blob {key} ended after {len(data)} of {part.total_size} bytes: submit the job again"
                )
        found = hashlib.sha256(data).hexdigest()
        if found != key:
            raise BlobTransferError(
                f"the blob {key} arrived with the SHA-256 {found}: it was damaged in the blob store; submit "
                "the job again"
            )
        return bytes(data)

    async def fetch(self, keys: Iterable[str]) -> dict[str, str]:
        """The local path of each blob, fetched if it is not here yet; a failed fetch is retried."""
        wanted = list(dict.fromkeys(keys))
        for key in wanted:
            task = self._fetches.get(key)
            if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
                path = self._directory / str(len(self._fetches))
                self._fetches[key] = asyncio.create_task(self._store(key, path), name=f"fetch {key}")
        # Shielded: another deployment may wait for the same file.
        paths = await asyncio.gather(*(asyncio.shield(self._fetches[key]) for key in wanted))
        return {key: str(path) for key, path in zip(wanted, paths, strict=True)}

    async def _store(self, key: str, path: Path) -> Path:
        data = await self.read(key)

        def write() -> None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(data)

        await self._run_blocking(write)
        return path

    async def close(self) -> None:
        """Ends fetches and removes the files; may be repeated."""
        self.is_closed = True
        for task in self._fetches.values():
            task.cancel()
        await asyncio.gather(*self._fetches.values(), return_exceptions=True)
        self._fetches.clear()
        await self._run_blocking(lambda: shutil.rmtree(self._directory, ignore_errors=True))
