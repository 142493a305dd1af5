"""Names of the open transactions of a sink subtask: unique, and telling whether somebody needs them.

Owner: the writer that makes them (task thread). A name holds the job and sink, the subtask, and the last
checkpoint in which the subtask had taken part when the transaction began. So a writer that starts from
checkpoint n knows its predecessors' leftovers by name alone. A transaction that began at or after n is in no
restored state. A transaction that began before a savepoint of the job is in that savepoint. Another job may
begin from it, and only that job may end the transaction. Must do no I/O.
"""

from __future__ import annotations

import hashlib
import re

from yarrow.datastream.connectors.base import SinkWriterContext
from yarrow.runtime.common.ids import IdFactory

_NAME = re.compile(
    r"(?P<tag>[0-9a-f]{16})-(?P<subtask>\d+)-(?P<epoch>\d+)-(?P<writer>[0-9a-f]{16})-(?P<count>\d+)"
)


class TransactionNames:
    """Makes the names of one writer and recognises the names of writers before it."""

    def __init__(self, context: SinkWriterContext, ids: IdFactory) -> None:
        identity = f"{context.job_id}/{context.sink_id}"
        #: Tells this job's sink from all others: 16 hex digits.
        self.tag = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._subtask = context.subtask_index
        self._parallelism = context.parallelism
        self._restored = context.restored_checkpoint_id
        self._epoch = self._restored or 0
        #: Every transaction that began before it is in a restored checkpoint or in a savepoint.
        self._first_leftover = max(self._epoch, context.latest_savepoint_id or 0)
        #: New for every writer, so that no attempt makes a name that another one has made.
        self.writer = ids.hex_id()[-16:]
        self._count = 0

    def checkpoint_taken(self, checkpoint_id: int) -> None:
        """Hear of a checkpoint: transactions that begin from now on are not part of it."""
        self._epoch = checkpoint_id

    def next(self) -> str:
        """A name used once: `<tag>-<subtask>-<checkpoint>-<writer>-<count>`."""
        self._count += 1
        return f"{self.tag}-{self._subtask}-{self._epoch}-{self.writer}-{self._count}"

    def is_of_this_sink(self, name: str) -> bool:
        """True when this job's sink made the name, in any attempt and subtask."""
        found = _NAME.fullmatch(name)
        return found is not None and found["tag"] == self.tag

    def is_leftover(self, name: str) -> bool:
        """True for a transaction of an earlier attempt that no restored state holds: this subtask must remove it.

        False for everything of other jobs and sinks, of subtasks that others take over, and of this writer.
        """
        found = _NAME.fullmatch(name)
        if found is None or found["tag"] != self.tag or found["writer"] == self.writer:
            return False
        if int(found["subtask"]) % self._parallelism != self._subtask:
            return False
        return int(found["epoch"]) >= self._first_leftover


def checkpoint_of(name: str) -> int:
    """The last checkpoint before the transaction of that name began: in its order a key's transactions follow.

    Raises ValueError for what is no such name.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no name of a transaction")
    return int(found["epoch"])
