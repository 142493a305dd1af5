"""TaskExecutorConnections: the registered TaskExecutors, their gateways and heartbeats.

Owner: the ResourceManager's loop. Asks each for its heartbeat. A TaskExecutor that is silent for
heartbeat.timeout or cannot be reached is reported once, and the ResourceManager drops it. Must not know
slots: reports are passed on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol

import msgspec

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ResourceID, ResourceManagerID
from yarrow.runtime.rpc.gateway_type import TASK_EXECUTOR
from yarrow.runtime.rpc.gateways import TaskExecutorGateway
from yarrow.runtime.rpc.heartbeat import HeartbeatMonitor, HeartbeatSettings
from yarrow.runtime.rpc.messages import (
    DelegationTokens,
    SlotReport,
    TaskExecutorRegistration,
    TaskExecutorToResourceManagerHeartbeat,
)
from yarrow.runtime.rpc.service import RpcService

_log = logging.getLogger(__name__)

#: Runs a coroutine beside the endpoint, under a name.
Spawn = Callable[[Coroutine[Any, Any, None], str], object]


class TaskExecutorConnection(msgspec.Struct):
    """One registered TaskExecutor."""

    registration: TaskExecutorRegistration
    gateway: TaskExecutorGateway
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    data_port: int = -1
    asking: bool = False
    #: Consecutive heartbeats without an answer.
    failed_heartbeats: int = 0
    #: The reason that it gave for its end, if somebody else ends it.
    last_words: str = ""
    #: Number of the newest delegation tokens that it has certainly taken into use.
    tokens_number: int = 0

    @property
    def resource_id(self) -> ResourceID:
        """Its name."""
        return self.registration.resource_id


class TaskExecutorHandler(Protocol):
    """Receives events of TaskExecutor connections."""

    def on_slot_report(self, resource_id: ResourceID, report: SlotReport) -> None:
        """A registered TaskExecutor reports the content of its slots."""
        ...

    def on_task_executor_unreachable(self, resource_id: ResourceID, cause: str) -> None:
        """A TaskExecutor does not answer; it may be alive."""
        ...


class TaskExecutorConnections:
    """All registered TaskExecutors, until they are dropped."""

    def __init__(
        self,
        service: RpcService,
        leader_id: ResourceManagerID,
        heartbeat: HeartbeatSettings,
        clock: Clock,
        spawn: Spawn,
        handler: TaskExecutorHandler,
        newest_tokens: Callable[[], DelegationTokens | None] = lambda: None,
    ) -> None:
        self._service = service
        self._leader_id = leader_id
        self._heartbeat = heartbeat
        self._spawn = spawn
        self._handler = handler
        self._newest_tokens = newest_tokens
        self._executors: dict[ResourceID, TaskExecutorConnection] = {}
        self._beats: HeartbeatMonitor[ResourceID] = HeartbeatMonitor(heartbeat, clock)

    def __iter__(self) -> Iterator[TaskExecutorConnection]:
        return iter(self._executors.values())

    def find(self, resource_id: ResourceID) -> TaskExecutorConnection | None:
        """The connection; None if it is not registered."""
        return self._executors.get(resource_id)

    def register(self, registration: TaskExecutorRegistration) -> None:
        """Registers a TaskExecutor, for the first time or again."""
        gateway = self._service.connect(registration.address, TASK_EXECUTOR)
        self._executors[registration.resource_id] = TaskExecutorConnection(registration, gateway)
        self._beats.monitor(registration.resource_id)

    def drop(self, resource_id: ResourceID) -> TaskExecutorConnection | None:
        """Removes a TaskExecutor. Returns its last connection, None if it was not registered."""
        executor = self._executors.pop(resource_id, None)
        self._beats.unmonitor(resource_id)
        return executor

    def milliseconds_since_heartbeat(self, resource_id: ResourceID) -> int:
        """Milliseconds since the last heartbeat of a registered TaskExecutor."""
        return int(self._beats.seconds_since(resource_id) * 1000)

    def beat(self) -> None:
        """Asks for heartbeats; call it every heartbeat interval."""
        beats = self._beats.tick()
        silence = f"no heartbeat for {self._heartbeat.timeout:g} s (heartbeat.timeout)"
        for resource_id in beats.silent:
            self._handler.on_task_executor_unreachable(resource_id, silence)
        for resource_id in beats.ask:
            executor = self._executors[resource_id]
            if not executor.asking:
                executor.asking = True
                self._spawn(self._ask(executor), "heartbeat")

    async def _ask(self, executor: TaskExecutorConnection) -> None:
        resource_id = executor.resource_id
        try:
            payload = await executor.gateway.heartbeat_from_resource_manager(self._leader_id)
        except YarrowError as error:
            _log.info("no heartbeat from %s: %s", resource_id, error)
            executor.failed_heartbeats += 1
            if executor.failed_heartbeats >= self._heartbeat.failure_threshold > 0:
                self._handler.on_task_executor_unreachable(
                    resource_id, (f"the TaskExecutor cannot be reached: {error}")
                )
        else:
            executor.failed_heartbeats = 0
            self.heard(payload)
            await self._hand_over_tokens(executor)
        finally:
            executor.asking = False

    async def _hand_over_tokens(self, executor: TaskExecutorConnection) -> None:
        """Gives newer delegation tokens to a TaskExecutor. Where that fails, the next heartbeat tries it again."""
        tokens = self._newest_tokens()
        if tokens is None or tokens.number == executor.tokens_number:
            return
        try:
            await executor.gateway.update_delegation_tokens(self._leader_id, tokens)
        except YarrowError as error:
            _log.warning(
                "TaskExecutor %s has not taken new delegation tokens: %s", executor.resource_id, error
            )
        else:
            executor.tokens_number = tokens.number

    def heard(self, payload: TaskExecutorToResourceManagerHeartbeat) -> None:
        """Takes a heartbeat; ignores one of an unregistered TaskExecutor."""
        executor = self._executors.get(payload.resource_id)
        if executor is not None:
            self._beats.heard(payload.resource_id)
            executor.metrics = payload.metrics
            executor.data_port = payload.data_port
            self._handler.on_slot_report(payload.resource_id, payload.slot_report)
