"""FailoverStrategy: what a failed task means for the job. Pure decisions; carried out by job_scheduler.py.

Owner: the JobMaster's loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from yarrow.am.jobmaster.execution_graph import Execution, ExecutionGraph
from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.rpc.messages import FailureCause


@dataclass(frozen=True, slots=True)
class FailJob:
    """The job fails with the cause at hand."""


@dataclass(frozen=True, slots=True)
class RestartTasks:
    """These are cancelled and started as new attempts after a pause."""

    attempts: frozenset[ExecutionAttemptID]
    delay_seconds: float


FailoverDecision = FailJob | RestartTasks


class FailoverStrategy(Protocol):
    """Decides what to do when a task failed."""

    def decide(
        self, graph: ExecutionGraph, failed: Execution | None, cause: FailureCause
    ) -> FailoverDecision:
        """`failed` is None where no single task is at fault (no slots, for instance)."""
        ...


class NoRestart:
    """Every failure fails the job (restart-strategy: none)."""

    def decide(
        self, graph: ExecutionGraph, failed: Execution | None, cause: FailureCause
    ) -> FailoverDecision:
        return FailJob()
