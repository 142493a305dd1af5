"""SlotSparkDrivers: SparkDrivers in slots of registered TaskExecutors, whose supervisors start them.

Owner: the ResourceManager's loop. The SlotManager chooses the slot, as for any job: a driver's job needs one slot
until its driver has one. After that it needs none, so that a driver that has ended is not replaced here: its
BatchJobMaster decides. Must not start a second driver while it is unknown whether the first has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from yarrow.am.execution.errors import SparkDriverStartError
from yarrow.am.resourcemanager.slot_events import JobGone, RequirementsDeclared, SlotManagerEvent
from yarrow.am.resourcemanager.slot_manager import SlotManager
from yarrow.am.resourcemanager.slots import Slot, SlotState
from yarrow.am.resourcemanager.spark_drivers import OnDriverDelayed, OnDriverEnded
from yarrow.am.resourcemanager.task_executor_connections import Spawn, TaskExecutorConnections
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import AllocationID, JobID, ResourceID
from yarrow.runtime.graph.states import BatchRunner
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.messages import (
    ResourceProfile,
    ResourceRequirement,
    SlotRequest,
    SparkDriverRequest,
    SparkDriverStart,
)

_log = logging.getLogger(__name__)
#: Seconds in which TaskExecutors hear that this leadership ends; else they find it out themselves.
_GOODBYE: Final = 1.0
_ONE_SLOT: Final = (ResourceRequirement(profile=ResourceProfile(), number_of_slots=1),)


class DriversInSlots(msgspec.Struct, frozen=True):
    """Says that the SparkDrivers of a cluster take slots of its TaskExecutors."""

    #: The certificates of each driver, in the role of SparkDrivers; empty = the cluster uses none.
    identity: PemIdentity = msgspec.field(default_factory=PemIdentity)


class _Phase(StrEnum):
    #: It needs a slot.
    WAITING = "WAITING"
    #: A TaskExecutor is asked to start it.
    REQUESTED = "REQUESTED"
    #: The TaskExecutor did not answer: its next slot report says whether the driver has the slot.
    UNKNOWN = "UNKNOWN"
    #: It has its slot.
    STARTED = "STARTED"
    #: It has no slot any more, and gets none.
    ENDED = "ENDED"


class _Driver(msgspec.Struct):
    request: SparkDriverRequest
    on_ended: OnDriverEnded
    on_delayed: OnDriverDelayed
    started: asyncio.Future[None]
    ended: asyncio.Future[None]
    phase: _Phase = _Phase.WAITING
    #: The latest request; None while WAITING for the first one.
    slot: SlotRequest | None = None
    #: It must end, because nobody needs it any more.
    is_released: bool = False
    #: What is known of its end.
    cause: str = ""


class SlotSparkDrivers:
    """The drivers of one leadership; a SparkDriverLauncher."""

    def __init__(
        self,
        settings: DriversInSlots,
        slots: SlotManager,
        executors: TaskExecutorConnections,
        handle: Callable[[SlotManagerEvent], None],
        spawn: Spawn,
    ) -> None:
        """`handle` gives an event to `slots`, carries out what follows, and then calls `look`."""
        self._settings = settings
        self._slots = slots
        self._executors = executors
        self._handle = handle
        self._spawn = spawn
        #: By job: a job has one driver at a time.
        self._drivers: dict[JobID, _Driver] = {}
        #: Allocations whose TaskExecutor is being asked to free them.
        self._freeing: set[AllocationID] = set()
        self._is_closed = False

    # SparkDriverLauncher.

    async def start_spark_driver(
        self, request: SparkDriverRequest, on_ended: OnDriverEnded, on_delayed: OnDriverDelayed
    ) -> None:
        loop = asyncio.get_running_loop()
        former = self._drivers.get(request.job_id)
        if former is not None:
            await self.end_spark_driver(former.request.driver_id)
        driver = _Driver(request, on_ended, on_delayed, loop.create_future(), loop.create_future())
        self._drivers[request.job_id] = driver
        self._declare(driver, needs_slot=True)
        await driver.started

    async def end_spark_driver(self, driver_id: ResourceID) -> None:
        driver = next((one for one in self._drivers.values() if one.request.driver_id == driver_id), None)
        if driver is None:
            return
        driver.is_released = True
        if self._is_closed:
            await self._say_goodbye(driver)
            return
        if driver.phase in (_Phase.WAITING, _Phase.REQUESTED):
            # The slot that was asked for is the last one.
            self._declare(driver, needs_slot=False)
        self.look()
        await asyncio.shield(driver.ended)

    def close(self) -> None:
        """Ends the leadership: nobody hears any more whether a driver has ended."""
        self._is_closed = True

    async def _say_goodbye(self, driver: _Driver) -> None:
        """Best effort: a TaskExecutor ends the drivers of a master that it loses."""
        if driver.slot is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._free(driver.slot.slot_id.resource_id, driver.slot.allocation_id), _GOODBYE
                )
        self._end(driver, "its master leads no more")

    # What the ResourceManager hears.

    def take(self, request: SlotRequest) -> SparkDriverStart | None:
        """The message that starts a driver in that slot; None if the slot is not for a driver."""
        driver = self._drivers.get(request.job_id)
        if driver is None:
            return None
        driver.phase, driver.slot = _Phase.REQUESTED, request
        own = driver.request
        # The TaskExecutor calls the BatchJobMaster under its own name then.
        is_local = own.runner is BatchRunner.LOCAL
        return SparkDriverStart(
            slot=request,
            driver_id=own.driver_id,
            configuration=own.configuration,
            identity=b"" if is_local else msgspec.msgpack.encode(self._settings.identity),
            runner=own.runner,
        )

    def acknowledged(self, request: SlotRequest) -> None:
        """The TaskExecutor starts the driver; call it before the SlotManager hears of it."""
        driver = self._present(request)
        if driver is not None and driver.phase is _Phase.REQUESTED:
            self._has_started(driver)

    def failed(self, request: SlotRequest) -> None:
        """Whether the driver starts is unknown; call it before the SlotManager hears of it."""
        driver = self._present(request)
        if driver is not None and driver.phase is _Phase.REQUESTED:
            driver.phase = _Phase.UNKNOWN
            self._declare(driver, needs_slot=False)

    def freed(self, allocation_id: AllocationID, cause: str) -> None:
        """A TaskExecutor frees a slot; call it before the SlotManager hears of it."""
        for driver in list(self._drivers.values()):
            if driver.slot is not None and driver.slot.allocation_id == allocation_id:
                self._end(driver, cause or "its slot was freed")

    def executor_gone(self, resource_id: ResourceID, cause: str) -> None:
        """A TaskExecutor is gone; call it before the SlotManager hears of it."""
        for driver in list(self._drivers.values()):
            if driver.slot is not None and driver.slot.slot_id.resource_id == resource_id:
                driver.cause = f"its TaskExecutor {resource_id} is gone: {cause}"

    def explain(self, job_id: JobID, explanation: str) -> bool:
        """Passes on why a job gets no slot; False if the job has no driver."""
        driver = self._drivers.get(job_id)
        if driver is not None:
            driver.on_delayed(explanation)
        return driver is not None

    def look(self) -> None:
        """Compares each driver with the slots; call it after each event of the SlotManager."""
        if not self._is_closed:
            for driver in list(self._drivers.values()):
                self._look_at(driver)

    def _look_at(self, driver: _Driver) -> None:
        self._free_others(driver)
        slot = self._slot_of(driver)
        if driver.phase in (_Phase.UNKNOWN, _Phase.WAITING):
            self._look_for_start(driver, slot)
        elif driver.phase is _Phase.REQUESTED and driver.is_released and slot is None:
            self._end(driver, driver.cause or "nobody needs it any more")
        elif driver.phase is _Phase.STARTED and slot is None:
            self._end(driver, driver.cause or "its TaskExecutor reports that its slot is free")
        may_live = driver.phase in (_Phase.STARTED, _Phase.UNKNOWN)
        if driver.is_released and may_live and driver.slot is not None:
            self._ask_to_free(driver.slot.slot_id.resource_id, driver.slot.allocation_id)

    def _look_for_start(self, driver: _Driver, slot: Slot | None) -> None:
        """Finds out what a request without an answer has led to."""
        if slot is not None and slot.state is SlotState.ALLOCATED:
            # The answer alone was lost, or the request came late.
            self._has_started(driver)
        elif driver.phase is _Phase.UNKNOWN and slot is not None:
            return
        elif driver.is_released:
            self._end(driver, "nobody needs it any more")
        elif driver.phase is _Phase.UNKNOWN:
            driver.phase, driver.cause = _Phase.WAITING, ""
            self._declare(driver, needs_slot=True)

    def _free_others(self, driver: _Driver) -> None:
        """Ends what a former master has started for the job, before or beside this driver."""
        own = None if driver.slot is None else driver.slot.allocation_id
        for slot in self._slots.slots_of(driver.request.job_id):
            if slot.allocation_id is not None and slot.allocation_id != own:
                self._ask_to_free(slot.slot_id.resource_id, slot.allocation_id)

    def _slot_of(self, driver: _Driver) -> Slot | None:
        """The slot of its latest request, while it may be the driver's."""
        if driver.slot is None:
            return None
        executor = self._slots.task_executors.get(driver.slot.slot_id.resource_id)
        slot = None if executor is None else executor.slots.get(driver.slot.slot_id.index)
        if slot is None or slot.state is SlotState.UNKNOWN:
            return slot
        return slot if slot.allocation_id == driver.slot.allocation_id else None

    def _present(self, request: SlotRequest) -> _Driver | None:
        driver = self._drivers.get(request.job_id)
        return driver if driver is not None and driver.slot == request else None

    # Changes.

    def _declare(self, driver: _Driver, needs_slot: bool) -> None:
        own = driver.request
        requirements = _ONE_SLOT if needs_slot else ()
        self._handle(
            RequirementsDeclared(own.job_id, own.job_master_id, own.job_master_address, requirements)
        )

    def _has_started(self, driver: _Driver) -> None:
        driver.phase, driver.cause = _Phase.STARTED, ""
        self._declare(driver, needs_slot=False)
        if not driver.started.done():
            driver.started.set_result(None)

    def _end(self, driver: _Driver, cause: str) -> None:
        if driver.phase is _Phase.ENDED:
            return
        driver.phase = _Phase.ENDED
        own = driver.request
        if self._drivers.get(own.job_id) is driver:
            del self._drivers[own.job_id]
        driver.ended.set_result(None)
        if driver.started.done():
            driver.on_ended(own.driver_id, cause)
        else:
            noun = own.runner.driver_noun
            error = SparkDriverStartError(f"the {noun} {own.driver_id} did not start: {cause}")
            driver.started.set_exception(error)
        if not self._is_closed:
            self._handle(JobGone(own.job_id))

    def _ask_to_free(self, resource_id: ResourceID, allocation_id: AllocationID) -> None:
        """Asks once at a time; the next look asks again if need be."""
        if allocation_id not in self._freeing:
            self._freeing.add(allocation_id)
            self._spawn(self._free(resource_id, allocation_id), "end SparkDriver")

    async def _free(self, resource_id: ResourceID, allocation_id: AllocationID) -> None:
        executor = self._executors.find(resource_id)
        try:
            if executor is not None:
                await executor.gateway.free_slot(allocation_id, "its job does not need it any more")
        except YarrowError as error:
            _log.info("TaskExecutor %s was not asked to end a SparkDriver: %s", resource_id, error)
        finally:
            self._freeing.discard(allocation_id)
