"""Roles: what a certificate of one role may call, whom it takes for a master, and that nothing is decoded before."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from tests.unit.runtime.rpc.loops import DEADLINE, run
from yarrow.runtime.common.clock import SystemClock, perf_counter
from yarrow.runtime.common.ids import JobID, ResourceID, ResourceManagerID
from yarrow.runtime.rpc import grpc_transport
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import CallerNotAllowedError, InvalidMessageError, RpcUnavailableError
from yarrow.runtime.rpc.gateway_type import (
    BATCH_JOB_MASTER,
    DISPATCHER,
    JOB_MASTER,
    LOCAL_DRIVER,
    RESOURCE_MANAGER,
    SPARK_DRIVER,
    TASK_EXECUTOR,
    GatewayType,
)
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.messages import Acknowledge
from yarrow.runtime.rpc.roles import (
    SERVED_BY,
    SPARK_DRIVERS_MAY_CALL,
    TASK_EXECUTORS_MAY_CALL,
    Role,
    may_call,
    role_in,
)
from yarrow.runtime.rpc.service import RpcService
from yarrow.runtime.security.certificates import CertificateAuthority

AUTHORITY = CertificateAuthority("app", SystemClock())
GATEWAYS: dict[str, GatewayType[Any]] = {
    gateway.name: gateway
    for gateway in cast(
        "list[GatewayType[Any]]",
        [
            DISPATCHER,
            RESOURCE_MANAGER,
            JOB_MASTER,
            TASK_EXECUTOR,
            BATCH_JOB_MASTER,
            SPARK_DRIVER,
            LOCAL_DRIVER,
        ],
    )
}
#: What a process that has only a TaskExecutor's key must never be able to do: the table must not grow by these.
MASTERS_ONLY = {
    "DispatcherGateway": set(DISPATCHER.methods),
    "TaskExecutorGateway": set(TASK_EXECUTOR.methods),
    "ResourceManagerGateway": {
        "register_job_master",
        "declare_required_resources",
        "disconnect_job_master",
        "heartbeat_from_job_master",
        "request_spark_driver",
        "release_spark_driver",
        "request_task_executors",
    },
    "JobMasterGateway": {"notify_not_enough_resources"},
    # A TaskExecutor may have the driver of a bounded job, and calls its master as a SparkDriver does.
    "BatchJobMasterGateway": set(),
    "SparkDriverGateway": set(SPARK_DRIVER.methods),
    "LocalDriverGateway": set(LOCAL_DRIVER.methods),
}


class Everything(RpcEndpoint):
    """Answers to every method of a gateway, and notes that it was called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.called: list[str] = []
        self.port = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        async def call(*arguments: Any) -> Acknowledge:
            self.called.append(name)
            return Acknowledge()

        return call


def service(identity: PemIdentity, bind_host: str | None = None) -> RpcService:
    settings = GrpcSettings(application_id="app", bind_host=bind_host, identity=identity)
    return RpcService([GrpcTransport(settings)])


@asynccontextmanager
async def serving(
    server: PemIdentity, client: PemIdentity, gateway: GatewayType[Any]
) -> AsyncIterator[tuple[Everything, Any]]:
    """A client of an endpoint that answers to everything."""
    serves, calls = service(server, "127.0.0.1"), service(client)
    await serves.start()
    await calls.start()
    endpoint = Everything("it")
    await endpoint.start()
    address = serves.serve(gateway, endpoint)
    endpoint.port = urlsplit(address).port or 0
    try:
        yield endpoint, calls.connect(address, gateway)
    finally:
        await endpoint.stop()
        await calls.stop()
        await serves.stop()


def of(role: Role | None) -> PemIdentity:
    return AUTHORITY.issue("somebody", role)


def test_a_task_executor_cannot_submit_or_cancel() -> None:
    async def body() -> None:
        async with serving(of(Role.JOB_MANAGER), of(Role.TASK_EXECUTOR), DISPATCHER) as (
            endpoint,
            dispatcher,
        ):
            with pytest.raises(CallerNotAllowedError, match=r"taskexecutor may not .*Dispatcher.*submit_job"):
                await dispatcher.submit_job(b"graph")
            with pytest.raises(CallerNotAllowedError, match="cancel_job"):
                await dispatcher.cancel_job(JobID("ab"))
            assert endpoint.called == []

    run(body())


def test_a_task_executor_cannot_command_another() -> None:
    async def body() -> None:
        async with serving(of(Role.TASK_EXECUTOR), of(Role.TASK_EXECUTOR), TASK_EXECUTOR) as (
            endpoint,
            other,
        ):
            with pytest.raises(CallerNotAllowedError, match="release"):
                await other.release(ResourceManagerID("x"), "because")
            assert endpoint.called == []

    run(body())


def test_a_spark_driver_reports_to_its_master_and_commands_nobody() -> None:
    async def body() -> None:
        async with serving(of(Role.JOB_MANAGER), of(Role.SPARK_DRIVER), BATCH_JOB_MASTER) as (
            endpoint,
            master,
        ):
            await master.confirm_cancelled(JobID("ab"), 0)
            assert endpoint.called == ["confirm_cancelled"]
        async with serving(of(Role.SPARK_DRIVER), of(Role.TASK_EXECUTOR), SPARK_DRIVER) as (endpoint, driver):
            with pytest.raises(CallerNotAllowedError, match=r"taskexecutor may not call .*release"):
                await driver.release("because")
            assert endpoint.called == []
        async with serving(of(Role.JOB_MANAGER), of(Role.SPARK_DRIVER), DISPATCHER) as (endpoint, master):
            with pytest.raises(CallerNotAllowedError, match="sparkdriver may not call"):
                await master.submit_job(b"graph")
            assert endpoint.called == []

    run(body())


def test_nobody_takes_a_task_executor_for_a_master() -> None:
    async def body() -> None:
        async with serving(of(Role.TASK_EXECUTOR), of(Role.TASK_EXECUTOR), RESOURCE_MANAGER) as (
            endpoint,
            false,
        ):
            with pytest.raises(RpcUnavailableError):
                await false.disconnect_task_executor(ResourceID("te"), "because")
            assert endpoint.called == []

    run(body())


def test_what_a_task_executor_needs_is_allowed() -> None:
    async def body() -> None:
        async with serving(of(Role.JOB_MANAGER), of(Role.TASK_EXECUTOR), RESOURCE_MANAGER) as (
            endpoint,
            manager,
        ):
            await manager.disconnect_task_executor(ResourceID("te"), "because")
            assert endpoint.called == ["disconnect_task_executor"]
            with pytest.raises(CallerNotAllowedError):
                await manager.request_task_executors()

    run(body())


def test_a_master_may_call_all_and_reaches_task_executors() -> None:
    async def body() -> None:
        async with serving(of(Role.TASK_EXECUTOR), of(Role.JOB_MANAGER), TASK_EXECUTOR) as (
            endpoint,
            executor,
        ):
            await executor.release(ResourceManagerID("x"), "because")
            assert endpoint.called == ["release"]

    run(body())


def test_a_member_without_a_role_may_nothing() -> None:
    async def body() -> None:
        async with serving(of(Role.JOB_MANAGER), of(None), RESOURCE_MANAGER) as (endpoint, manager):
            with pytest.raises(CallerNotAllowedError, match="without a role"):
                await manager.disconnect_task_executor(ResourceID("te"), "because")
            assert endpoint.called == []

    run(body())


def test_arguments_are_not_decoded_before_the_role_is_known() -> None:
    """Arguments that do not decode are an error of their own for those who may call, and none for the others."""

    async def body() -> None:
        schema = DISPATCHER.method("submit_job")
        garbage = b"\xc1 not msgpack"
        for role, error in (
            (Role.JOB_MANAGER, InvalidMessageError),
            (Role.TASK_EXECUTOR, CallerNotAllowedError),
        ):
            serves, calls = service(of(Role.JOB_MANAGER), "127.0.0.1"), service(of(role))
            await serves.start()
            endpoint = Everything("it")
            await endpoint.start()
            address = serves.serve(DISPATCHER, endpoint)
            reply = await calls.caller(address).call(schema, garbage)
            with pytest.raises(error):
                schema.decode_reply(reply)
            await endpoint.stop()
            await calls.stop()
            await serves.stop()

    run(body())


def test_nothing_is_served_to_who_shows_no_certificate() -> None:
    """Neither plain text nor TLS without a certificate of the application gets one byte of an answer to a call."""

    async def body() -> None:
        serves = service(of(Role.JOB_MANAGER), "127.0.0.1")
        await serves.start()
        endpoint = Everything("it")
        await endpoint.start()
        port = int(serves.serve(DISPATCHER, endpoint).rsplit(":", 1)[1].partition("/")[0])
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
        assert b"\x00\x00\x00\x04" not in await endpoint.run_blocking(_answer, port, preface, False)
        assert await endpoint.run_blocking(_answer, port, preface, True) == b""
        await endpoint.stop()
        await serves.stop()

    run(body())


@pytest.mark.parametrize(
    ("handshake_ms", "closed"), [(600_000, 32), (1000, 40)], ids=["by their number", "by their silence"]
)
def test_strangers_are_cut_off_and_a_storm_of_them_harms_nobody(
    monkeypatch: pytest.MonkeyPatch, handshake_ms: int, closed: int
) -> None:
    monkeypatch.setattr(grpc_transport, "_HANDSHAKE_MS", handshake_ms)
    monkeypatch.setattr(grpc_transport, "_MAX_CONNECTIONS", 8)

    async def body() -> None:
        async with serving(of(Role.JOB_MANAGER), of(Role.TASK_EXECUTOR), RESOURCE_MANAGER) as (
            endpoint,
            manager,
        ):
            await manager.disconnect_task_executor(ResourceID("te"), "first")
            port = endpoint.port
            storm = [socket.create_connection(("127.0.0.1", port), timeout=120) for _ in range(40)]
            # Who has proved itself goes on meanwhile.
            await manager.disconnect_task_executor(ResourceID("te"), "second")
            assert await endpoint.run_blocking(_closed, storm, closed) >= closed
            for sock in storm:
                sock.close()
            await manager.disconnect_task_executor(ResourceID("te"), "third")
            assert len(endpoint.called) == 3

    run(body())


def _closed(storm: list[socket.socket], number: int) -> int:
    """How many of the connections the server has closed when it is that many, or none more is closed in time."""
    end = perf_counter() + DEADLINE / 2
    waiting = list(storm)
    closed = 0
    while closed < number and (left := end - perf_counter()) > 0:
        for sock in select.select(waiting, [], [], left)[0]:
            try:
                gone = sock.recv(4096) == b""
            except ConnectionError:
                gone = True
            if gone:
                sock.close()
                waiting.remove(sock)
                closed += 1
    return closed


def _answer(port: int, data: bytes, tls: bool) -> bytes:
    """What the server says to bytes from a stranger until it closes."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=120)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    received = b""
    try:
        sock = context.wrap_socket(plain) if tls else plain
        with sock:
            sock.sendall(data)
            while part := sock.recv(4096):
                received += part
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        plain.close()
    return received


def test_every_method_is_named_by_the_table_or_by_this_test() -> None:
    assert set(SERVED_BY) == set(GATEWAYS)
    for name, gateway in GATEWAYS.items():
        allowed = TASK_EXECUTORS_MAY_CALL.get(name, frozenset())
        assert allowed | MASTERS_ONLY[name] == set(gateway.methods), name
        assert not allowed & MASTERS_ONLY[name], name
    # A SparkDriver reaches its own master alone, and there each method; it commands nobody.
    assert {name: set(methods) for name, methods in SPARK_DRIVERS_MAY_CALL.items()} == {
        "BatchJobMasterGateway": set(BATCH_JOB_MASTER.methods)
    }


def test_a_certificate_with_two_roles_has_none() -> None:
    both = [role.server_name for role in Role]
    assert role_in(both) is None
    assert role_in(["yarrow.internal"]) is None
    assert role_in(["yarrow.internal", both[0]]) is Role.JOB_MANAGER
    assert not may_call(None, "ResourceManagerGateway", "register_task_executor")


def test_certificates_cannot_sign_others() -> None:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(of(Role.TASK_EXECUTOR).certificate)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca
