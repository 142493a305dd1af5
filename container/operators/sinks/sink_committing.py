"""PendingCommits: the prepared and uncommitted results of a sink, by checkpoint, and their commits.

Owner: the task thread of the sink. The operator retries a failed commit at `next_attempt`, so that nothing
blocks here. Order is kept: no committable overtakes one that was prepared before it. Must not know writers,
barriers or the place of state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from yarrow.datastream.connectors.base import CommitRejectedError, Committer
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.randomness import new_generator, shortened
from yarrow.runtime.config.options import sink
from yarrow.runtime.config.settings import Settings

#: Most seconds between two tries.
MAX_DELAY_SECONDS = 10.0
#: Replaces a checkpoint's id: committed when the input ends, in a job without checkpoints.
END_OF_INPUT = 1 << 62
_SHOWN = 200


class CommitFailedError(YarrowError):
    """A prepared result could not be committed; the job restores the checkpoint that holds it, and tries again.

    It is final if the committer raised CommitRejectedError: each restart would find the same. The checkpoint stays.
    """

    def __init__(
        self, sink_name: str, committable: Any, checkpoint_id: int, tries: int, cause: Exception
    ) -> None:
        self.is_final = isinstance(cause, CommitRejectedError)
        shown = repr(committable)
        if len(shown) > _SHOWN:
            shown = shown[: _SHOWN - 3] + "..."
        again = (
            "another attempt cannot help"
            if self.is_final
            else f"tried {tries} times; see {sink.COMMITTER_RETRIES.key}"
        )
        when = (
            "at the end of the input" if checkpoint_id == END_OF_INPUT else f"of checkpoint {checkpoint_id}"
        )
        super().__init__(
            f"sink '{sink_name}' cannot commit {shown} {when} ({again}): {type(cause).__name__}: {cause}"
        )
        self.committable = committable
        self.checkpoint_id = checkpoint_id


class RetrySettings(msgspec.Struct, frozen=True):
    """Limits and delays of commit retries."""

    retries: int
    delay_seconds: float

    @staticmethod
    def of(settings: Settings) -> RetrySettings:
        """Reads the configuration."""
        delay = settings.get(sink.COMMITTER_RETRY_DELAY)
        return RetrySettings(settings.get(sink.COMMITTER_RETRIES), delay.seconds)

    def delay_after(self, failures: int) -> float:
        """Seconds to wait after so many consecutive failures."""
        return float(min(MAX_DELAY_SECONDS, self.delay_seconds * 2 ** min(failures - 1, 16)))


class PendingCommits:
    """The committables of one sink subtask that were prepared and have no known commit."""

    def __init__(
        self, sink_name: str, subtask: int, committer: Committer, clock: Clock, retry: RetrySettings
    ) -> None:
        self._sink_name = sink_name
        self._subtask = subtask
        self._committer = committer
        self._clock = clock
        self._retry = retry
        self._random = new_generator()
        #: Ids ascend; the lists are in the order of preparation.
        self._by_checkpoint: dict[int, list[Any]] = {}
        #: Everything up to this checkpoint must be committed.
        self._completed = -1
        self._failures = 0
        #: Checkpoints that hold then pending committables and may still be restored.
        self._snapshots: set[int] = set()
        #: Monotonic time in seconds of the next try; None = none.
        self.next_attempt: float | None = None
        #: Numbers of successful, failed and retried commits.
        self.successful = 0
        self.failed = 0
        self.retried = 0

    def add(self, checkpoint_id: int, committables: Iterable[Any]) -> None:
        """Adds committables of a checkpoint; ids must not fall."""
        found = list(committables)
        if found:
            self._by_checkpoint.setdefault(checkpoint_id, []).extend(found)

    def entries(self) -> list[tuple[int, Any]]:
        """All pending committables with their checkpoints, in the order of commits."""
        return [(n, committable) for n, found in self._by_checkpoint.items() for committable in found]

    def snapshotted(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint holds the present `entries`."""
        self._snapshots.add(checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint will never complete; its committables are committed with a later one."""
        self._snapshots.discard(checkpoint_id)

    def complete(self, checkpoint_id: int) -> None:
        """Commits everything up to this checkpoint. Raises CommitFailedError if no try is left."""
        self._snapshots = {n for n in self._snapshots if n > checkpoint_id}
        self._completed = max(self._completed, checkpoint_id)
        if self._failures == 0:
            self.attempt()

    def attempt(self) -> None:
        """Commits everything that is due; after a failure `next_attempt` says when to call again."""
        self.next_attempt = None
        due = [n for n in self._by_checkpoint if n <= self._completed]
        total = sum(len(self._by_checkpoint[n]) for n in due)
        if not total:
            return
        fault_points.reach(
            "sink.before-commit", checkpoint_id=self._completed, subtask=self._subtask, of=total
        )
        done = 0
        for checkpoint_id in due:
            waiting = self._by_checkpoint[checkpoint_id]
            while waiting:
                if not self._commit(checkpoint_id, waiting[0]):
                    return
                done += 1
                fault_points.reach(
                    "sink.mid-commit",
                    checkpoint_id=checkpoint_id,
                    subtask=self._subtask,
                    index=done,
                    of=total,
                )
                del waiting[0]
            del self._by_checkpoint[checkpoint_id]
        fault_points.reach(
            "sink.after-commit", checkpoint_id=self._completed, subtask=self._subtask, of=total
        )

    def _commit(self, checkpoint_id: int, committable: Any) -> bool:
        self.retried += self._failures > 0
        try:
            self._committer.commit([committable])
        except Exception as error:  # committers are users' code
            self._failures += 1
            self.failed += 1
            if isinstance(error, CommitRejectedError) or self._failures > self._retry.retries:
                raise CommitFailedError(
                    self._sink_name, committable, checkpoint_id, self._failures, error
                ) from error
            # Subtasks that failed together commit again one by one.
            delay = shortened(self._retry.delay_after(self._failures), self._random)
            self.next_attempt = self._clock.monotonic() + delay
            return False
        self._failures = 0
        self.successful += 1
        return True

    def abandon(self) -> Sequence[Any]:
        """Removes the committables that no checkpoint can restore: these may be aborted.

        The rest belongs to a restore.
        """
        newest = max(self._snapshots, default=-1)
        kept = max(newest, self._completed)
        lost = [n for n in self._by_checkpoint if n > kept]
        return [committable for n in lost for committable in self._by_checkpoint.pop(n)]

    def __len__(self) -> int:
        return sum(len(found) for found in self._by_checkpoint.values())
