"""CollectedPositions: which rows of a bounded job the client's buffer has, so that a second run sends none twice.

Owner: the BatchJobMaster's loop. Pure. Runs make the same rows in each subtask, but may cut them into messages
differently: rows are known by their positions. A message of known and new rows goes on, and the client takes the new
ones. Must not look into rows.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.rpc.messages import CollectRows

#: A position behind all rows: no row of a former run is void.
_NONE_IS_VOID = 1 << 62


class CollectedPositions:
    """How many rows of each subtask of each collect operator the buffer has taken."""

    def __init__(self, master: str) -> None:
        """`master` is no other BatchJobMaster's: the client tells runs of several masters apart."""
        self._master = master
        self._run = 0
        self._taken = Counter[tuple[str, int]]()
        #: Subtasks of which a message has begun that has several parts.
        self._begun: set[tuple[str, int]] = set()

    def new_rows(self, rows: CollectRows) -> CollectRows | None:
        """The message as the buffer takes it; None for known rows, and for those that a former run sends late.

        Its attempt is the run.
        """
        if rows.attempt_number < self._run:
            return None
        if rows.attempt_number > self._run:
            self._run = rows.attempt_number
            self._begun.clear()
        subtask, end = (rows.collect_id, rows.subtask), rows.first + rows.row_count
        if rows.continued:
            self._begun.add(subtask)
        elif rows.row_count:
            if subtask not in self._begun and end <= self._taken[subtask]:
                return None
            self._begun.discard(subtask)
            self._taken[subtask] = max(self._taken[subtask], end)
        return msgspec.structs.replace(
            rows,
            attempt_id=ExecutionAttemptID(f"{self._master}-{self._run}"),
            stream=f"-1-{rows.subtask}",
            restored=_NONE_IS_VOID,
        )
