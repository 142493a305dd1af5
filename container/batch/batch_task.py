"""BatchTask: one attempt of one partition of a stage: the vertex's OperatorChain over bounded input.

Owner: the thread that iterates `run`. There is no gate, mailbox, credit or checkpoint. Must not know who moves
chunks, nor what becomes of a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from yarrow.container.batch.chunk import Chunk
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch_plan import BatchPlan
from yarrow.runtime.graph.job_graph import JobGraph


class BatchAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Names one attempt of one task, and says what it reads besides chunks."""

    vertex_id: JobVertexID
    #: The partition of the stage, from 0.
    subtask: int
    #: From 0; each attempt of a task emits the same rows.
    attempt: int = 0
    #: The task's share of a source's splits (`split_assignment.assign`), in order.
    splits: tuple[bytes, ...] = ()
    #: Seals pickled rows of execute_and_collect (`result_rows.ResultWriter`).
    result_key: bytes = b""


class BatchTask:
    """One attempt of one task. Its operators live while `run` is iterated."""

    def __init__(
        self,
        graph: JobGraph,
        plan: BatchPlan,
        attempt: BatchAttempt,
        settings: Settings,
        clock: Clock,
        working_directory: Path,
    ) -> None:
        """`settings` are the worker's under the job's; `working_directory` takes what the task spills."""
        self._graph = graph
        self._plan = plan
        self._attempt = attempt
        self._settings = settings
        self._clock = clock
        self._working_directory = working_directory

    def run(self, inputs: Iterable[Chunk]) -> Iterator[Chunk]:
        """Runs the task: takes all chunks of its partition, in any order, and yields chunks as they fill.

        The last chunk is the FINISHED one. Raises OperatorFailure with operator and record if user code fails.
        A generator that is closed early closes its operators.
        """
        raise NotImplementedError
