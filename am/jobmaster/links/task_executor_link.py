"""TaskExecutorLink: the messages of a JobMaster to one TaskExecutor, sent in the order of the decisions.

Owner: the JobMaster's loop. One message is in flight at a time, so that a cancel never overtakes its submit.
Waiting cancels are sent as one message. Heartbeats do not queue here. Must send nothing behind a disconnect, nor when
the JobMaster is suspended or the TaskExecutor is given up.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from yarrow.am.execution.blob_store import BlobStore
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import AllocationID, ExecutionAttemptID, JobID, JobMasterID, ResourceID
from yarrow.runtime.common.timers import Timers
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import RpcUnavailableError
from yarrow.runtime.rpc.gateways import TaskExecutorGateway
from yarrow.runtime.rpc.messages import (
    AllocatedSlotReport,
    Deployment,
    NotifyCheckpoint,
    OperatorEvent,
    ResetSubtask,
    TaskExecutorToJobMasterHeartbeat,
    TriggerCheckpoint,
    WatermarkBounds,
)
from yarrow.runtime.rpc.restored_tasks import restored_bytes, without_restored

if TYPE_CHECKING:
    from yarrow.runtime.common.retry_pauses import RetryPauses

_log = logging.getLogger(__name__)
#: Seconds of the first pause between two tries of a message that must arrive, and of the longest.
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 1.0
#: Called when a TaskExecutor did not take a checkpoint's trigger, with the error.
OnTriggerFailed = Callable[[TriggerCheckpoint, YarrowError], None]
#: Called when attempts could not be started, with the error.
OnSubmitFailed = Callable[[tuple[ExecutionAttemptID, ...], YarrowError], None]


class _Cancel(msgspec.Struct, frozen=True):
    attempts: tuple[ExecutionAttemptID, ...]


class _Free(msgspec.Struct, frozen=True):
    allocation_id: AllocationID
    cause: str


class _Disconnect(msgspec.Struct, frozen=True):
    cause: str


class _Trigger(msgspec.Struct, frozen=True):
    trigger: TriggerCheckpoint
    on_failed: OnTriggerFailed


_Message = (
    Deployment
    | OperatorEvent
    | ResetSubtask
    | NotifyCheckpoint
    | WatermarkBounds
    | _Trigger
    | _Cancel
    | _Free
    | _Disconnect
)


class LinkServices(msgspec.Struct, frozen=True):
    """The clock, timers and blob store that a TaskExecutorLink uses."""

    clock: Clock
    timers: Timers
    blobs: BlobStore
    #: A larger restored state travels through the blob store.
    inline_state_bytes: int


class TaskExecutorLink:
    """One TaskExecutor as a JobMaster sees it."""

    def __init__(
        self,
        owner: RpcEndpoint,
        resource_id: ResourceID,
        gateway: TaskExecutorGateway,
        job_id: JobID,
        job_master_id: JobMasterID,
        on_submit_failed: OnSubmitFailed,
        services: LinkServices,
    ) -> None:
        self.resource_id = resource_id
        self.gateway = gateway
        self._owner = owner
        self._job_id = job_id
        self._job_master_id = job_master_id
        self._on_submit_failed = on_submit_failed
        self._services = services
        self._queue: deque[_Message] = deque()
        self._sender: asyncio.Task[None] | None = None
        #: Nothing more is sent: the disconnect is queued, or the link is closed.
        self._ends = False
        #: Set to end the present pause between two tries.
        self._wake = asyncio.Event()
        #: Deployed and acknowledged attempts. A heartbeat that lacks one of them shows that it may be lost.
        self.acknowledged: set[ExecutionAttemptID] = set()
        #: Attempts that the last heartbeat lacked; an attempt that the next one lacks too is lost.
        self.suspects: frozenset[ExecutionAttemptID] = frozenset()
        #: Consecutive heartbeats without an answer.
        self.failed_heartbeats = 0
        #: A heartbeat request is in flight.
        self.asking = False

    async def heartbeat(self, report: AllocatedSlotReport) -> TaskExecutorToJobMasterHeartbeat:
        """Asks for a heartbeat without queueing. Raises YarrowError if no answer comes."""
        return await self.gateway.heartbeat_from_job_master(self._job_master_id, report)

    async def say_goodbye(self, why: str) -> None:
        """Tells a TaskExecutor that it was given up, without queueing; it need not be alive."""
        try:
            await self.gateway.disconnect_job_master(self._job_id, self._job_master_id, why)
        except YarrowError as error:
            _log.debug("TaskExecutor %s does not answer: %s", self.resource_id, error)

    def submit(self, deployment: Deployment) -> None:
        """Starts tasks. `on_submit_failed` is called if that fails."""
        self._put(deployment)

    def cancel(self, attempts: tuple[ExecutionAttemptID, ...]) -> None:
        """Cancels tasks. If the message fails, the cancellation timeout or a heartbeat repairs that."""
        self._put(_Cancel(attempts))

    def send_event(self, event: OperatorEvent) -> None:
        """Delivers an operator event behind whatever was decided before."""
        self._put(event)

    def reset_subtask(self, reset: ResetSubtask) -> None:
        """Tells an enumerator to take back a reader's splits before that reader restarts."""
        self._put(reset)

    def trigger_checkpoint(self, trigger: TriggerCheckpoint, on_failed: OnTriggerFailed) -> None:
        """Tells tasks to begin a checkpoint. `on_failed` is called if the message did not arrive."""
        self._put(_Trigger(trigger, on_failed))

    def notify_checkpoint(self, notification: NotifyCheckpoint) -> None:
        """Tells whether a checkpoint was completed or aborted.

        A later notification makes up for a lost one.
        """
        self._put(notification)

    def send_bounds(self, bounds: WatermarkBounds) -> None:
        """Delivers bounds in place of earlier ones that wait for the same readers.

        The next bounds make up for lost ones.
        """
        for waiting in [message for message in self._queue if isinstance(message, WatermarkBounds)]:
            if waiting.bounds.keys() <= bounds.bounds.keys():
                self._queue.remove(waiting)
        self._put(bounds)

    def free_slot(self, allocation_id: AllocationID, cause: str) -> None:
        """Gives a slot back."""
        self._put(_Free(allocation_id, cause))

    def disconnect(self, cause: str) -> None:
        """Ends the job's use of the TaskExecutor. Later messages are dropped."""
        self._put(_Disconnect(cause))
        self._ends = True
        self._wake.set()

    async def drained(self) -> None:
        """Returns when every queued message has been sent or has failed."""
        if self._sender is not None:
            await asyncio.gather(self._sender, return_exceptions=True)

    def close(self) -> None:
        """Drops all queued messages and later ones: the TaskExecutor is gone, or the JobMaster is suspended."""
        self._ends = True
        self._queue.clear()
        if self._sender is not None:
            self._sender.cancel()

    def _put(self, message: _Message) -> None:
        if self._ends:
            _log.debug("TaskExecutor %s gets no message any more", self.resource_id)
            return
        self._queue.append(message)
        if self._sender is None or self._sender.done():
            self._sender = self._owner.spawn(self._send_all(), f"to {self.resource_id}")

    async def _send_all(self) -> None:
        while self._queue:
            message = self._queue.popleft()
            if isinstance(message, _Cancel):
                message = self._merged(message)
            try:
                await self._call_until_answered(message)
            except YarrowError as error:
                _log.info("a message to TaskExecutor %s failed: %s", self.resource_id, error)
                if isinstance(message, Deployment):
                    self._on_submit_failed(tuple(task.attempt_id for task in message.tasks), error)
                elif isinstance(message, _Trigger):
                    message.on_failed(message.trigger, error)
            else:
                if isinstance(message, Deployment):
                    self.acknowledged.update(task.attempt_id for task in message.tasks)

    async def _call_until_answered(self, message: _Message) -> None:
        """Repeats a message until it is answered or the TaskExecutor is given up.

        Readers wait for their events, and ignore an event that arrives twice.
        """
        pauses: RetryPauses | None = None
        while True:
            try:
                await self._call(message)
                return
            except RpcUnavailableError as error:
                if self._ends or not isinstance(message, OperatorEvent | ResetSubtask):
                    raise
                _log.info(
                    "TaskExecutor %s did not answer a message, which is sent again: %s",
                    self.resource_id,
                    error,
                )
            if pauses is None:
                pauses = self._new_pauses()
            await self._pause(pauses.next_seconds() or 0.0)

    def _new_pauses(self) -> RetryPauses:
        # Imported late: most embedded clusters repeat nothing.
        from yarrow.runtime.common.retry_pauses import RetryPauses

        return RetryPauses(math.inf, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, self._services.clock)

    async def _pause(self, seconds: float) -> None:
        """Waits; a disconnect ends the pause."""
        timer = self._services.timers.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
            self._wake.clear()

    def _merged(self, first: _Cancel) -> _Cancel:
        attempts = first.attempts
        while self._queue and isinstance(following := self._queue[0], _Cancel):
            attempts += following.attempts
            self._queue.popleft()
        return _Cancel(attempts)

    async def _submit(self, deployment: Deployment) -> None:
        restored = restored_bytes(deployment)
        if len(restored) <= self._services.inline_state_bytes:
            await self.gateway.submit_tasks(deployment)
            return
        blocking, blobs = self._owner.run_blocking, self._services.blobs
        key = await blocking(blobs.put_here, restored)
        try:
            await self.gateway.submit_tasks(without_restored(deployment, key))
        finally:
            # The blob belongs to these attempts alone: no other message will name it.
            await blocking(blobs.remove_here, key)

    def _call(self, message: _Message) -> Coroutine[Any, Any, Any]:
        gateway, job, leader = self.gateway, self._job_id, self._job_master_id
        match message:
            case Deployment():
                return self._submit(message)
            case OperatorEvent():
                return gateway.send_operator_event(leader, message)
            case WatermarkBounds():
                return gateway.send_watermark_bounds(leader, message)
            case ResetSubtask():
                return gateway.reset_subtask(leader, message)
            case NotifyCheckpoint():
                return gateway.notify_checkpoint(leader, message)
            case _Trigger(trigger):
                return gateway.trigger_checkpoint(leader, trigger)
            case _Cancel(attempts):
                return gateway.cancel_tasks(job, leader, attempts)
            case _Free(allocation_id, cause):
                return gateway.free_slot(allocation_id, cause)
            case _Disconnect(cause):
                return gateway.disconnect_job_master(job, leader, cause)
