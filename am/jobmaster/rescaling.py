"""Rescaling of a running job: its tasks end with a checkpoint and start again from it at another parallelism.

Owner: the JobMaster's loop; `rescaled_job` is pure. The job is not stopped before it holds all slots that it
will need. Between the checkpoint and its end a task processes nothing, so that no row is processed twice. If
the checkpoint cannot be restored, or a task fails before all run, the job returns to its former parallelism.
job_scheduler.py ends and starts tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import CheckpointFailedError, YarrowError
from yarrow.runtime.common.ids import IdFactory, JobVertexID
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.runtime.rpc.messages import RESCALES_KEPT, FailureCause, RescaleRecord

_CHECKPOINT_ATTEMPTS = 3
_log = logging.getLogger(__name__)


class RescaleRefusedError(YarrowError):
    """The requested parallelism is impossible, or the job cannot be rescaled now; nothing has changed."""


class RescaleFailedError(YarrowError):
    """A rescale failed; the job runs on at its former parallelism, or has ended meanwhile."""


def parallelism_for_all(job: JobGraph, parallelism: int) -> dict[JobVertexID, int]:
    """`parallelism` for each vertex that may have a parallelism other than 1."""
    single = {edge.target for edge in job.edges if edge.partitioner.kind is PartitionerKind.GLOBAL}
    return {
        vertex.id: vertex.parallelism
        if vertex.parallelism == 1 and _stays_single(vertex, single)
        else parallelism
        for vertex in job.vertices
    }


def _stays_single(vertex: JobVertex, single: set[JobVertexID]) -> bool:
    return vertex.id in single or not vertex.head.spec.rescalable


def rescaled_job(job: JobGraph, parallelism: Mapping[JobVertexID, int]) -> JobGraph:
    """The job with these parallelisms; vertices that are not named keep theirs.

    Raises RescaleRefusedError, which names the impossible parallelism.
    """
    unknown = set(parallelism) - {vertex.id for vertex in job.vertices}
    if unknown:
        raise RescaleRefusedError(
            f"the job {job.name!r} has no vertex {sorted(unknown)[0]}: name a vertex of GET /jobs/<job id>"
        )
    vertices = []
    for vertex in job.vertices:
        wanted = parallelism.get(vertex.id, vertex.parallelism)
        if not 1 <= wanted <= vertex.max_parallelism:
            raise RescaleRefusedError(
                f"{vertex.name!r} cannot have the parallelism {wanted}: it must lie between 1 and its max "
                f"parallelism, {vertex.max_parallelism}, which is fixed when a job first "
                "starts"
            )
        vertices.append(msgspec.structs.replace(vertex, parallelism=wanted))
    by_id = {vertex.id: vertex for vertex in vertices}
    for edge in job.edges:
        source, target = by_id[edge.source], by_id[edge.target]
        if edge.partitioner.kind is PartitionerKind.FORWARD and source.parallelism != target.parallelism:
            raise RescaleRefusedError(
                f"{source.name!r} and {target.name!r} are connected by forward(): their parallelism must be equal, not "
                f"{source.parallelism} and {target.parallelism}"
            )
    return msgspec.structs.replace(job, vertices=tuple(vertices), plan=_plan(job.plan, by_id))


def _plan(plan: dict[str, Any], vertices: Mapping[JobVertexID, JobVertex]) -> dict[str, Any]:
    nodes = [
        {**node, "parallelism": vertices[node["id"]].parallelism} if node.get("id") in vertices else node
        for node in plan.get("nodes", ())
    ]
    return {**plan, "nodes": nodes} if "nodes" in plan else plan


class RescalableJob(Protocol):
    """What Rescaling asks of its JobMaster."""

    def hold_slots_for(self, job: JobGraph) -> None:
        """Asks for the slots that the present job lacks to become `job`.

        `Rescaling.slots_answered` is then called once.
        """
        ...

    def let_slots_go(self) -> None:
        """Frees slots that were held for a rescale and are not used; may be repeated."""
        ...

    async def stop_with_checkpoint(self) -> CompletedCheckpoint:
        """Takes a checkpoint with which all tasks end.

        Raises CheckpointFailedError if it fails; the tasks then run on.
        """
        ...

    async def go_on_as(self, job: JobGraph) -> None:
        """Cancels all remaining tasks, then starts all tasks as `job`.

        With the present job this cannot fail.
        """
        ...


class Rescaling:
    """The rescales of one job, one at a time."""

    def __init__(self, master: RescalableJob, clock: Clock, ids: IdFactory) -> None:
        self._master = master
        self._clock = clock
        self._ids = ids
        self._ended: asyncio.Future[FailureCause | None] | None = None
        #: Set while a rescale waits for slots.
        self._slots: asyncio.Future[FailureCause | None] | None = None
        #: Set while no rescale is under way.
        self._idle = asyncio.Event()
        self._idle.set()
        self._history: list[RescaleRecord] = []

    @property
    def history(self) -> tuple[RescaleRecord, ...]:
        """Oldest first; the last may still run."""
        return tuple(self._history)

    @property
    def is_under_way(self) -> bool:
        """True while a rescale is running."""
        return self._ended is not None

    async def idle(self) -> None:
        """Returns when no rescale is running. Waiting calls continue in their order of arrival."""
        while self._ended is not None:
            await self._idle.wait()

    async def rescale(self, job: JobGraph, parallelism: Mapping[JobVertexID, int], cause: str) -> None:
        """Returns when all tasks run at the new parallelism; raises RescaleRefusedError or RescaleFailedError."""
        if self._ended is not None:
            raise RescaleRefusedError(
                f"the job {job.name!r} is being rescaled already: wait for the end of that rescale"
            )
        try:
            following = rescaled_job(job, parallelism)
        except RescaleRefusedError as error:
            # A refusal is remembered too: some callers do not wait for the answer.
            self._remember(job, parallelism, cause)
            self._note("FAILED", str(error))
            raise
        if following.vertices == job.vertices:
            return
        self._ended = asyncio.get_running_loop().create_future()
        self._idle.clear()
        self._remember(job, parallelism, cause)
        try:
            await self._carry_out(job, following)
        except YarrowError as error:
            self._note("FAILED", str(error))
            raise RescaleFailedError(f"the job {job.name!r} was not rescaled: {error}") from error
        except BaseException as error:
            self._note("FAILED", repr(error))
            raise
        else:
            self._note("COMPLETED", "")
        finally:
            self._ended = None
            self._idle.set()
            self._master.let_slots_go()

    def _remember(self, job: JobGraph, parallelism: Mapping[JobVertexID, int], cause: str) -> None:
        before = {vertex.id: vertex.parallelism for vertex in job.vertices}
        record = RescaleRecord(
            rescale_id=self._ids.hex_id(),
            start_ms=self._clock.epoch_ms(),
            before=before,
            after={**before, **parallelism},
            trigger_cause=cause,
        )
        self._history.append(record)
        del self._history[:-RESCALES_KEPT]

    async def _carry_out(self, job: JobGraph, following: JobGraph) -> None:
        # Imported late: key groups import numpy, which a master loads only when needed.
        from yarrow.runtime.snapshot.assignment import assign

        checkpoint = await self._taken(following)
        assert self._ended is not None
        refused: Exception | None = None
        try:
            assign(checkpoint.metadata, following, allow_non_restored=True)
            if not self._ended.done():
                await self._master.go_on_as(following)
        except Exception as error:  # the tasks have ended, or will: they start as they were
            refused = error
            await self._master.go_on_as(job)
        failure = await self._ended
        if refused is not None:
            raise RescaleFailedError(str(refused)) from refused
        if failure is not None:
            raise RescaleFailedError(failure.message)

    async def _hold_slots_for(self, job: JobGraph) -> None:
        """Returns when all slots are held; until then nothing has changed for the tasks."""
        self._slots = asyncio.get_running_loop().create_future()
        try:
            self._master.hold_slots_for(job)
            failure = await self._slots
        finally:
            self._slots = None
        if failure is not None:
            raise RescaleFailedError(failure.message)

    async def _taken(self, following: JobGraph) -> CompletedCheckpoint:
        """Takes the checkpoint.

        A task that finishes meanwhile may fail it; it is then tried again, with all slots held.
        """
        for _ in range(_CHECKPOINT_ATTEMPTS - 1):
            await self._hold_slots_for(following)
            try:
                return await self._master.stop_with_checkpoint()
            except CheckpointFailedError as error:
                _log.info(
                    "the job has no checkpoint to rescale from yet, the JobMaster tries again: %s", error
                )
        await self._hold_slots_for(following)
        return await self._master.stop_with_checkpoint()

    def slots_answered(self, failure: FailureCause | None) -> None:
        """Takes the outcome of `hold_slots_for`: all slots are held or, with a failure, will not be."""
        if self._slots is not None and not self._slots.done():
            self._slots.set_result(failure)

    def ended(self, failure: FailureCause | None) -> None:
        """Takes the outcome: all tasks run anew or, with a failure, the job went back or has ended."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(failure)
            self.slots_answered(failure)

    def _note(self, state: str, reason: str) -> None:
        self._history[-1] = msgspec.structs.replace(
            self._history[-1], state=state, reason=reason, end_ms=self._clock.epoch_ms()
        )
