"""A control plane reached over gRPC by its TaskExecutors and in process by its client; jobs that outlive a
master."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.control.control_cluster import eventually
from tests.support.fake_task_executor import FakeBehaviour, FakeTaskExecutor
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run
from yarrow.am.control_plane import ControlPlane, ControlPlaneServices, ControlPlaneSettings
from yarrow.am.resourcemanager.driver import StandaloneDriver
from yarrow.am.resourcemanager.settings import ResourceManagerSettings, SlotManagerSettings
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.timers import LoopTimers
from yarrow.runtime.graph.job_graph import encode_job_graph
from yarrow.runtime.ha.none import NoHighAvailability
from yarrow.runtime.rpc.gateway_type import DISPATCHER
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.in_process import InProcessTransport
from yarrow.runtime.rpc.leader import AnnouncedLeader
from yarrow.runtime.rpc.service import RpcService
from yarrow.runtime.security.certificates import CertificateAuthority

AUTHORITY = CertificateAuthority("app", SystemClock())


def grpc(name: str) -> GrpcTransport:
    return GrpcTransport(
        GrpcSettings(application_id="app", bind_host="127.0.0.1", identity=AUTHORITY.issue(name))
    )


def master(directory: Path, kept: NoHighAvailability | None = None) -> ControlPlane:
    settings = ControlPlaneSettings(
        blob_directory=str(directory / "blobs"),
        resource_manager=ResourceManagerSettings(slots=SlotManagerSettings(can_request=False)),
    )
    services = ControlPlaneServices(high_availability=kept or NoHighAvailability())
    rpc = RpcService([grpc("master"), InProcessTransport()])
    return ControlPlane(rpc, StandaloneDriver(), settings, services)


def test_jobs_run_with_task_executors_behind_grpc(tmp_path: Path) -> None:
    async def body() -> None:
        plane = master(tmp_path)
        await plane.start()
        workers = RpcService([grpc("workers")])
        await workers.start()
        executor = FakeTaskExecutor(
            workers,
            "te",
            3,
            AnnouncedLeader(plane.resource_manager_leader),
            SystemClock(),
            LoopTimers(),
            FakeBehaviour(finish=True),
        )
        await executor.start()
        assert plane.dispatcher_leader.address.startswith("grpc://127.0.0.1:")
        near = plane.dispatcher_gateway()
        client = RpcService([grpc("client")])
        far = client.connect(plane.dispatcher_leader.address, DISPATCHER, plane.dispatcher_leader.leader_id)
        first = await near.submit_job(encode_job_graph(linear_job(Stage(3), Stage(2), job_id=1)))
        second = await far.submit_job(encode_job_graph(linear_job(Stage(2), job_id=2)))
        assert (await far.request_job_result(first)).status is JobStatus.FINISHED
        assert (await near.request_job_result(second)).status is JobStatus.FINISHED
        await executor.stop()
        await client.stop()
        await plane.stop()
        await workers.stop()

    run(body())


def test_a_new_master_starts_the_stored_jobs_that_have_not_ended(tmp_path: Path) -> None:
    async def body() -> None:
        kept = NoHighAvailability()
        first = master(tmp_path, kept)
        await first.start()
        job_id = await first.dispatcher_gateway().submit_job(encode_job_graph(linear_job(Stage(1))))
        await first.stop()
        second = master(tmp_path, kept)
        await second.start()
        gateway = second.dispatcher_gateway()

        async def runs() -> bool:
            return await gateway.request_job_status(job_id) is JobStatus.RUNNING

        await eventually(runs)
        await gateway.cancel_job(job_id)
        assert (await gateway.request_job_result(job_id)).status is JobStatus.CANCELED
        records = kept.records(2)
        await eventually(lambda: not any(map(records.children, ("jobs", "results", "checkpoints"))))
        await second.stop()

    run(body())
