"""CommitsToMake: what the tasks of a bounded job have prepared, stored before any of it is committed.

Owner: the BatchJobMaster's loop; `store` and `remove` block and run in its threads. A driver that commits can die: the
next one finds everything here, and the Committer repeats it. Must not look into committables.
"""

from __future__ import annotations

import msgspec

from yarrow.am.execution.blob_store import BlobStore
from yarrow.runtime.rpc.messages import BatchCommittables, StoredCommittables


class CommitsToMake:
    """The committables of the present run, then the blob that holds them."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._run = 0
        self._messages: list[BatchCommittables] = []
        #: The blob that holds what is to be committed; "" = nothing is certain to be committed.
        self.blob_key = ""

    def add(self, message: BatchCommittables) -> None:
        """Takes a message of the present run, or of the next one, which replaces all of the former run."""
        if message.run > self._run:
            self._run = message.run
            self._messages.clear()
        if message.run == self._run:
            self._messages.append(message)

    def store(self, run: int) -> None:
        """Stores what that run has left."""
        if self.blob_key:
            return
        messages = tuple(self._messages) if run == self._run else ()
        self.blob_key = self._blobs.put_here(msgspec.msgpack.encode(StoredCommittables(messages=messages)))

    def remove(self) -> None:
        """Removes what was stored: the job has ended."""
        if self.blob_key:
            self._blobs.remove_here(self.blob_key)
