"""RunningCluster: the functions of a master that its deployment mode may use.

Owner: the master's loop. A mode submits, waits and says how the application ends; it neither starts nor stops
parts of the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from yarrow.am.control_plane import ControlPlane
from yarrow.am.leader_gateway import NoLeaderError
from yarrow.am.rest.activity import ClientActivity
from yarrow.am.yarn.modes.application_end import ApplicationEnd, end_of_job
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.ha.records import RecordsError
from yarrow.runtime.rpc.errors import RpcUnavailableError
from yarrow.runtime.rpc.gateways import DispatcherGateway
from yarrow.runtime.rpc.messages import JobOverview, JobResult
from yarrow.runtime.yarn.application import ApplicationDescription, DeploymentMode
from yarrow.runtime.yarn.container_files import ContainerFolder
from yarrow.runtime.yarn.gateways import FinalStatus

#: Seconds between two looks at the clients' requests.
LOOK = 0.1
#: Seconds that a job's result waits for the next question of a client.
CLIENT_PATIENCE = 5.0
#: Seconds that a client has for further questions after it knows the result.
LAST_QUESTIONS = 1.0
#: Seconds that all clients have altogether.
LONGEST_STAY = 60.0
#: Like CLIENT_PATIENCE and LONGEST_STAY, for a client that reads the job's rows: a program may take its time
#: over them.
READER_PATIENCE, LONGEST_READ = 30.0, 600.0


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A started master, as its deployment mode sees it."""

    plane: ControlPlane
    config: Settings
    description: ApplicationDescription
    folder: ContainerFolder
    activity: ClientActivity
    clock: Clock
    #: The key with which workers seal rows of execute_and_collect.
    result_key: bytes = field(default=b"", repr=False)
    #: Called with the finished part of the application, 0.0 to 1.0.
    report_progress: Callable[[float], None] = lambda progress: None

    async def result_of(self, job_id: JobID) -> JobResult:
        """The final result of a job, across changes of leadership."""
        dispatcher = self.plane.dispatcher_gateway()
        while True:
            with contextlib.suppress(RpcUnavailableError, FencingTokenError, NoLeaderError, RecordsError):
                result = await dispatcher.request_job_result(job_id)
                if result.status.is_globally_terminal_state():
                    return result
            await asyncio.sleep(LOOK)

    async def jobs(self) -> tuple[JobOverview, ...]:
        """All jobs of the cluster; waits for a leader that answers."""
        dispatcher = self.plane.dispatcher_gateway()
        while True:
            with contextlib.suppress(RpcUnavailableError, FencingTokenError):
                return await dispatcher.list_jobs()
            await asyncio.sleep(LOOK)

    async def stopped_by_a_client(self) -> ApplicationEnd:
        """The end of an application whose client asks for it: that of its only job if it has one that ended."""
        jobs: tuple[JobOverview, ...] = ()
        # One look: an end on request does not wait for a leader.
        with contextlib.suppress(YarrowError):
            jobs = await self.plane.dispatcher_gateway().list_jobs()
        if (
            self.description.mode is DeploymentMode.PER_JOB
            and jobs
            and jobs[0].status.is_globally_terminal_state()
        ):
            return end_of_job(await self.result_of(jobs[0].job_id))
        return ApplicationEnd(
            FinalStatus.KILLED, "The application was stopped by a client before its jobs had ended."
        )

    async def stay_for_clients(self, job_id: JobID) -> None:
        """Returns when a client knows the result of an ended job and has its rows, or when no client asks for them."""
        begin = self.clock.monotonic()
        while True:
            patience, longest = CLIENT_PATIENCE, LONGEST_STAY
            if self.activity.reads_rows(job_id):
                patience, longest = READER_PATIENCE, LONGEST_READ
            elif self.activity.has_told(job_id):
                patience = LAST_QUESTIONS
            stayed = self.clock.monotonic() - begin
            if stayed >= longest or min(stayed, self.activity.seconds_since_request()) > patience:
                return
            await asyncio.sleep(LOOK)


async def until_led(dispatcher: DispatcherGateway) -> None:
    """Returns when a leader answers: a later attempt must wait for the end of the former one's session."""
    while True:
        with contextlib.suppress(RpcUnavailableError, FencingTokenError):
            await dispatcher.list_jobs()
            return
        await asyncio.sleep(LOOK)
