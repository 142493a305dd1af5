"""Scheduling of many subtasks on fake TaskExecutors, with real messages and serialization; prints one JSON
line.

    python bench/scheduling.py [--subtasks 1000] [--slots-per-task-executor 10] [--transport inproc|grpc]

Measured from submit_job to the last subtask RUNNING, for half the subtasks and for all of them, each on a
fresh cluster; `ratio` is the one time divided by the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable

from tests.support.fake_task_executor import FakeTaskExecutor
from tests.support.job_graphs import Stage, linear_job
from yarrow.am.control_plane import ControlPlane, ControlPlaneSettings
from yarrow.am.resourcemanager.driver import StandaloneDriver
from yarrow.am.resourcemanager.settings import ResourceManagerSettings, SlotManagerSettings
from yarrow.runtime.common.clock import SystemClock, perf_counter
from yarrow.runtime.common.timers import LoopTimers
from yarrow.runtime.graph.job_graph import encode_job_graph
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.in_process import InProcessNetwork, InProcessTransport
from yarrow.runtime.rpc.leader import AnnouncedLeader
from yarrow.runtime.rpc.service import RpcService, Transport
from yarrow.runtime.security.certificates import CertificateAuthority

#: Polls of the job's state are part of what is measured: rare enough not to matter.
POLL_SECONDS = 0.002


class Processes:
    """The RPC services of the control plane and of the TaskExecutors, as if each side were a process."""

    def __init__(self, transport: str) -> None:
        self._network = InProcessNetwork()
        self._kind = transport
        self._authority = CertificateAuthority("bench", SystemClock()) if transport == "grpc" else None

    def service(self, name: str) -> RpcService:
        """One process's RPC."""
        transport: Transport
        if self._authority is None:
            transport = InProcessTransport(self._network)
        else:
            transport = GrpcTransport(
                GrpcSettings(
                    application_id="bench", bind_host="127.0.0.1", identity=self._authority.issue(name)
                )
            )
        return RpcService([transport])


async def schedule(subtasks: int, slots_each: int, transport: str, directory: str) -> float:
    """Seconds from submission until all subtasks run."""
    processes = Processes(transport)
    settings = ControlPlaneSettings(
        blob_directory=directory,
        resource_manager=ResourceManagerSettings(slots=SlotManagerSettings(can_request=False)),
    )
    plane = ControlPlane(processes.service("master"), StandaloneDriver(), settings)
    await plane.start()
    workers = processes.service("workers")
    await workers.start()
    parallelism = subtasks // 2
    executors = [
        FakeTaskExecutor(
            workers,
            f"te-{number}",
            slots_each,
            AnnouncedLeader(plane.resource_manager_leader),
            SystemClock(),
            LoopTimers(),
        )
        for number in range(-(-parallelism // slots_each))
    ]
    for executor in executors:
        await executor.start()
    dispatcher = plane.dispatcher_gateway()

    async def registered() -> bool:
        return (await dispatcher.request_overview()).task_executors == len(executors)

    async def running() -> bool:
        return (await dispatcher.list_jobs())[0].tasks["running"] == 2 * parallelism

    await _until(registered)
    graph = encode_job_graph(linear_job(Stage(parallelism), Stage(parallelism)))
    start = perf_counter()
    await dispatcher.submit_job(graph)
    await _until(running)
    seconds = perf_counter() - start
    for executor in executors:
        await executor.stop()
    await plane.stop()
    await workers.stop()
    return seconds


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 (asks through the gateway, as a client does)
        await asyncio.sleep(POLL_SECONDS)


def main() -> None:
    """Runs both sizes and prints the line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subtasks", type=int, default=1000)
    parser.add_argument("--slots-per-task-executor", type=int, default=10)
    parser.add_argument("--transport", choices=("inproc", "grpc"), default="inproc")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        half, whole = (
            asyncio.run(schedule(subtasks, arguments.slots_per_task_executor, arguments.transport, directory))
            for subtasks in (arguments.subtasks // 2, arguments.subtasks)
        )
    line = {
        "case": "scheduling",
        "transport": arguments.transport,
        "subtasks": arguments.subtasks,
        "slots_per_task_executor": arguments.slots_per_task_executor,
        "seconds": round(whole, 3),
        "seconds_half": round(half, 3),
        "ratio": round(whole / half, 2),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
