"""LargeKeyGroups: the key groups of a bounded job that have far more records than others, for REST and the log.

Owner: the BatchJobMaster's loop. Each run finds its own. Must not judge sizes: the SparkDriver does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.rpc.messages import BatchStageProgress, LargeKeyGroup

_log = logging.getLogger(__name__)


class LargeKeyGroups:
    """The large key groups of the present run: one of each stage at most."""

    def __init__(self, job: str) -> None:
        """`job` names the job in the log."""
        self._job = job
        self._run = 0
        self._found: dict[JobVertexID, LargeKeyGroup] = {}

    @property
    def all(self) -> tuple[LargeKeyGroup, ...]:
        """What is known now."""
        return tuple(self._found.values())

    def note(self, run: int, stages: Iterable[BatchStageProgress]) -> None:
        """Takes in what a run tells of its stages, and logs what is new."""
        if run < self._run:
            return
        if run > self._run:
            self._run = run
            self._found.clear()
        for stage in stages:
            found = stage.large_key_group
            if found is None:
                self._found.pop(stage.vertex_id, None)
                continue
            known = self._found.get(stage.vertex_id)
            self._found[stage.vertex_id] = found
            if known is None or known.key_group != found.key_group:
                _log.warning("%s: %s", self._job, described(found))


def described(group: LargeKeyGroup) -> str:
    """A sentence about it."""
    key = f"most of them of the key {group.key}" if group.key else "none of its keys has most of them"
    return (
        f"key group {group.key_group} of '{group.vertex_name}' has {group.records} records, {key}; the others have"
        f" {group.mean_records} on average. Its subtask {group.subtask} works longer than the others"
    )
