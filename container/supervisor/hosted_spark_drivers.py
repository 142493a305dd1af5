"""HostedSparkDrivers: the SparkDrivers in slots of one TaskExecutor: started, watched, and ended with all below them.

Owner: the TaskExecutor's event loop. A driver has its slot from the request for it until nothing of it is left. Must
not decide when a driver is needed: the ResourceManager gives and frees its slot, and the loss of the master ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import msgspec

from yarrow.container.protocol.errors import SlotNotAvailableError
from yarrow.container.supervisor.slot_table import SlotTable
from yarrow.runtime.common.errors import FencingTokenError
from yarrow.runtime.common.ids import AllocationID, JobID, ResourceID
from yarrow.runtime.ha.services import epoch_of_token
from yarrow.runtime.rpc.bootstrap import ProcessBootstrap, SparkDriverBootstrap
from yarrow.runtime.rpc.messages import SparkDriverStart

_log = logging.getLogger(__name__)
#: Allocations that have ended and are remembered, so that a message that comes late starts no driver again.
_REMEMBERED: Final = 1000


class DriverProcess(Protocol):
    """A running driver (SparkDriverProcess)."""

    @property
    def pid(self) -> int: ...

    def workers(self) -> list[tuple[str, int]]:
        """(name, pid) of its processes that use the memory of the TaskExecutor; those of Spark have their own."""
        ...

    async def wait(self) -> str:
        """Returns when nothing of it is left, with a description of its end."""
        ...

    async def end(self, grace: float | None = None) -> None:
        """Ends it, by force after `grace` seconds; returns when nothing of it is left.

        None = it has the time that its kind of driver needs. May be called again, with less time.
        """
        ...


#: Starts the process of a driver. An error is told as its end.
StartProcess = Callable[[SparkDriverStart], Coroutine[Any, Any, DriverProcess]]
#: Called with slot, allocation and cause when a driver has left its slot.
OnDriverGone = Callable[[int, AllocationID, str], None]


class _Hosted(msgspec.Struct):
    start: SparkDriverStart
    life: asyncio.Task[None] | None = None
    process: DriverProcess | None = None
    #: Why it is being ended; "" = it is not.
    end_cause: str = ""
    #: Seconds for its end; None = as many as it needs.
    grace: float | None = None
    #: Ends its process.
    ending: asyncio.Task[None] | None = None

    @property
    def allocation_id(self) -> AllocationID:
        """The allocation of its slot."""
        return self.start.slot.allocation_id


class HostedSparkDrivers:
    """The drivers that run here."""

    def __init__(self, table: SlotTable, start_process: StartProcess, on_gone: OnDriverGone) -> None:
        self._table = table
        self._start_process = start_process
        self._on_gone = on_gone
        self._hosted: dict[AllocationID, _Hosted] = {}
        self._ended: deque[AllocationID] = deque(maxlen=_REMEMBERED)

    @property
    def processes(self) -> dict[ResourceID, int]:
        """Process id of each living driver."""
        return {
            one.start.driver_id: one.process.pid for one in self._hosted.values() if one.process is not None
        }

    def workers(self) -> list[tuple[str, int]]:
        """(name, pid) of all workers of drivers that use the memory of the TaskExecutor."""
        living = [one.process for one in self._hosted.values() if one.process is not None]
        return [found for process in living for found in process.workers()]

    def start(self, start: SparkDriverStart) -> None:
        """Allocates the slot and begins to start the driver; no effect for a repeated message.

        Raises FencingTokenError and SlotNotAvailableError.
        """
        slot = start.slot
        if slot.allocation_id in self._ended:
            raise SlotNotAvailableError(
                f"the SparkDriver {start.driver_id} of the job {slot.job_id} has ended here: request another slot"
            )
        self._end_former(start)
        if not self._table.allocate(slot.slot_id.index, slot.job_id, slot.allocation_id):
            return
        hosted = self._hosted[slot.allocation_id] = _Hosted(start)
        hosted.life = asyncio.get_running_loop().create_task(
            self._run(hosted), name=f"SparkDriver {start.driver_id}"
        )

    def _end_former(self, start: SparkDriverStart) -> None:
        """Ends the job's driver of a former master. Raises FencingTokenError if the message is of a former one."""
        for other in self._of_job(start.slot.job_id):
            theirs, ours = other.start.slot.job_master_id, start.slot.job_master_id
            if theirs != ours and epoch_of_token(ours) < epoch_of_token(theirs):
                raise FencingTokenError(
                    f"the SparkDriver {other.start.driver_id} serves the job {start.slot.job_id} for the JobMaster"
                    f" {theirs}: the JobMaster {ours} does not lead any more"
                )
            if theirs != ours:
                self._end(other, f"the JobMaster {ours} has replaced its own")

    def _of_job(self, job_id: JobID) -> list[_Hosted]:
        return [one for one in self._hosted.values() if one.start.slot.job_id == job_id]

    def free(self, allocation_id: AllocationID, cause: str) -> bool:
        """Begins to end the driver of that slot; False if the slot has none."""
        hosted = self._hosted.get(allocation_id)
        if hosted is not None:
            self._end(hosted, cause)
        return hosted is not None

    def end_older_than(self, epoch: int) -> None:
        """Begins to end the drivers of former leaderships."""
        for hosted in list(self._hosted.values()):
            if epoch_of_token(hosted.start.slot.job_master_id) < epoch:
                self._end(hosted, f"its JobMaster does not lead any more: epoch {epoch} has begun")

    def end_all(self, cause: str) -> None:
        """Begins to end all drivers."""
        for hosted in list(self._hosted.values()):
            self._end(hosted, cause)

    async def close(self, cause: str, grace: float) -> None:
        """Ends all drivers, by force after `grace` seconds; returns when nothing of them is left."""
        hosted = list(self._hosted.values())
        # These drivers are ending already, and had been given more time.
        ending = [one.process for one in hosted if one.end_cause and one.process is not None]
        for one in hosted:
            one.grace = grace
        self.end_all(cause)
        lives = [one.life for one in hosted if one.life is not None]
        await asyncio.gather(*(process.end(grace) for process in ending), *lives, return_exceptions=True)

    def _end(self, hosted: _Hosted, cause: str) -> None:
        if hosted.end_cause:
            return
        hosted.end_cause = cause
        _log.info("%s %s is ended: %s", hosted.start.runner.driver_noun, hosted.start.driver_id, cause)
        self._table.release(hosted.allocation_id, cause)
        if hosted.process is not None:
            hosted.ending = asyncio.get_running_loop().create_task(hosted.process.end(hosted.grace))

    async def _run(self, hosted: _Hosted) -> None:
        cause = await self._live(hosted)
        self._table.release(hosted.allocation_id, cause)
        del self._hosted[hosted.allocation_id]
        self._ended.append(hosted.allocation_id)
        slot = self._table.free(hosted.allocation_id)
        self._on_gone(slot.index, hosted.allocation_id, hosted.end_cause or cause)

    async def _live(self, hosted: _Hosted) -> str:
        """Returns when nothing of the driver is left, with its end."""
        driver_id = hosted.start.driver_id
        try:
            hosted.process = await self._start_process(hosted.start)
        except Exception as error:
            _log.error("SparkDriver %s does not start", driver_id, exc_info=error)
            return f"it could not be started: {error}"
        if hosted.end_cause:
            # Its end came first.
            await hosted.process.end(hosted.grace)
        else:
            self._table.activate(hosted.allocation_id)
            _log.info("SparkDriver %s starts, pid %d", driver_id, hosted.process.pid)
        cause = await hosted.process.wait()
        _log.info("SparkDriver %s has ended: %s", driver_id, cause)
        return cause


async def start_no_process(start: SparkDriverStart) -> DriverProcess:
    """Raises OSError: the StartProcess of a TaskExecutor without processes."""
    raise OSError("this TaskExecutor starts no processes for SparkDrivers")


def driver_bootstrap(
    own: ProcessBootstrap,
    start: SparkDriverStart,
    task_executor: ResourceID,
    slots: int,
    working_directory: str,
) -> SparkDriverBootstrap:
    """The bootstrap of a driver of this TaskExecutor, under the TaskExecutor's own identity."""
    slot = start.slot
    return SparkDriverBootstrap(
        application_id=own.application_id,
        driver_id=start.driver_id,
        job_id=slot.job_id,
        job_master_address=slot.job_master_address,
        job_master_id=slot.job_master_id,
        host=own.host,
        bind_host=own.bind_host,
        identity=own.identity,
        data_secret=own.data_secret,
        configuration={**own.configuration, **start.configuration},
        log_directory=own.log_directory,
        working_directory=working_directory,
        max_message_bytes=own.max_message_bytes,
        slots=slots,
        task_executor=task_executor,
    )
