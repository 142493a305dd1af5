"""Both transports behave alike: results, typed errors, fencing, limits, life cycle."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.support.faulty_network import FaultyNetwork
from tests.support.scripted_fault import ScriptedFault
from tests.unit.runtime.rpc.echo import ECHO, Echo, EchoError, EchoGateway
from tests.unit.runtime.rpc.loops import run
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import FencingTokenError, JobExecutionError
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.endpoint import RpcEndpoint, WrongThreadError
from yarrow.runtime.rpc.errors import (
    AnswerTooLargeError,
    EndpointNotFoundError,
    HandshakeError,
    InvalidMessageError,
    MessageTooLargeError,
    RemoteError,
    RpcTimeoutError,
    RpcUnavailableError,
)
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.in_process import InProcessNetwork, InProcessTransport
from yarrow.runtime.rpc.messages import SlotID
from yarrow.runtime.rpc.service import AddressError, RpcService
from yarrow.runtime.security.certificates import CertificateAuthority

LIMIT = 4096
AUTHORITY = CertificateAuthority("app-1", SystemClock())

Services = Callable[[], tuple[RpcService, RpcService]]


def in_process() -> tuple[RpcService, RpcService]:
    network = InProcessNetwork()
    return (
        RpcService([InProcessTransport(network, LIMIT)]),
        RpcService([InProcessTransport(network, LIMIT)]),
    )


def over_grpc() -> tuple[RpcService, RpcService]:
    server = settings("server", bind_host="127.0.0.1")
    return RpcService([GrpcTransport(server)]), RpcService([GrpcTransport(settings("client"))])


def settings(
    name: str,
    bind_host: str | None = None,
    application_id: str = "app-1",
    authority: CertificateAuthority = AUTHORITY,
    ask_timeout: float = 10.0,
) -> GrpcSettings:
    return GrpcSettings(
        application_id=application_id,
        bind_host=bind_host,
        identity=authority.issue(name),
        max_message_bytes=LIMIT,
        ask_timeout=ask_timeout,
    )


@asynccontextmanager
async def echoing(
    services: tuple[RpcService, RpcService], token: str | None = None, served_token: str | None = None
) -> AsyncIterator[tuple[Echo, EchoGateway]]:
    """A served Echo and a client of it that bears `token`."""
    server, client = services
    await server.start()
    await client.start()
    endpoint = Echo(fencing_token=served_token)
    await endpoint.start()
    address = server.serve(ECHO, endpoint)
    try:
        yield endpoint, client.connect(address, ECHO, token)
    finally:
        await endpoint.stop()
        await client.stop()
        await server.stop()


both = pytest.mark.parametrize("services", [in_process, over_grpc])


@both
def test_arguments_and_results_cross(services: Services) -> None:
    async def body() -> None:
        async with echoing(services()) as (_, echo):
            assert await echo.echo("a") == "a"
            assert await echo.echo("a", times=3) == "aaa"
            slot = SlotID(resource_id=ResourceID("te"), index=3)
            assert await echo.slots((slot,)) == {"3": slot}

    run(body())


@both
def test_our_errors_come_back_as_themselves(services: Services) -> None:
    async def body() -> None:
        async with echoing(services()) as (_, echo):
            with pytest.raises(EchoError, match="salt and 7") as own:
                await echo.fail("own")
            assert (own.value.one, own.value.two) == ("salt", 7)
            with pytest.raises(JobExecutionError) as job:
                await echo.fail("job")
            assert job.value.job_id == "ab"

    run(body())


@both
def test_other_errors_are_quoted_with_their_trace(services: Services) -> None:
    async def body() -> None:
        async with echoing(services()) as (_, echo):
            with pytest.raises(RemoteError, match="raise ValueError") as other:
                await echo.fail("other")
            assert other.value.exception_name == "builtins.ValueError"

    run(body())


@both
def test_a_stale_token_is_refused_before_the_method_runs(services: Services) -> None:
    async def body() -> None:
        async with echoing(services(), token="old", served_token="new") as (endpoint, echo):
            with pytest.raises(FencingTokenError, match=r"old.*new"):
                await echo.tick()
            assert endpoint.ticks == 0

    run(body())


@both
def test_messages_over_the_limit_name_method_and_limit(services: Services) -> None:
    async def body() -> None:
        async with echoing(services()) as (_, echo):
            with pytest.raises(
                MessageTooLargeError, match=r"echo: the request .* 4096 bytes \(akka.framesize"
            ):
                await echo.echo("x" * LIMIT)
            with pytest.raises(AnswerTooLargeError, match=r"blob: the reply .* 4096 bytes \(akka.framesize"):
                await echo.blob(LIMIT)
            assert await echo.echo("still works") == "still works"

    run(body())


@both
def test_a_stopped_endpoint_answers_that_it_is_gone(services: Services) -> None:
    async def body() -> None:
        async with echoing(services()) as (endpoint, echo):
            waiting = asyncio.ensure_future(echo.wait())
            await endpoint.waiting.wait()
            await endpoint.stop()
            with pytest.raises(EndpointNotFoundError):
                await echo.tick()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    run(body())


@both
def test_nobody_serves_at_a_name(services: Services) -> None:
    async def body() -> None:
        server, client = services()
        await server.start()
        await client.start()
        endpoint = Echo()
        address = server.serve(ECHO, endpoint)
        server.stop_serving("echo")
        with pytest.raises(EndpointNotFoundError, match="echo"):
            await client.connect(address, ECHO).tick()
        await client.stop()
        await server.stop()

    run(body())


def test_a_taken_name_is_refused() -> None:
    async def body() -> None:
        server, _ = in_process()
        server.serve(ECHO, Echo())
        with pytest.raises(AddressError, match="already served"):
            server.serve(ECHO, Echo())

    run(body())


def test_an_endpoint_without_the_methods_is_refused() -> None:
    server, _ = in_process()
    with pytest.raises(TypeError, match="lacks methods of EchoGateway"):
        server.serve(ECHO, RpcEndpoint("bare"))


def test_arguments_of_another_type_are_refused() -> None:
    async def body() -> None:
        async with echoing(in_process()) as (_, echo):
            with pytest.raises(InvalidMessageError, match=r"EchoGateway.echo"):
                await echo.echo(3)  # type: ignore[arg-type]

    run(body())


def test_one_service_serves_both_kinds_of_address() -> None:
    async def body() -> None:
        network = FaultyNetwork(ScriptedFault())
        grpc = GrpcTransport(settings("server", bind_host="127.0.0.1"))
        server = RpcService([grpc, InProcessTransport(network)])
        client = RpcService([GrpcTransport(settings("client"))])
        await server.start()
        endpoint = Echo()
        await endpoint.start()
        address = server.serve(ECHO, endpoint)
        assert address == f"grpc://127.0.0.1:{grpc.port}/echo"
        assert await client.connect(address, ECHO).echo("far") == "far"
        assert await server.connect("inproc://echo", ECHO).echo("near") == "near"
        assert await server.connect(address, ECHO).echo("own") == "own"
        # The call to its own gRPC address stayed in the process.
        assert isinstance(network.fault, ScriptedFault)
        assert network.fault.seen == [("echo", "echo")] * 2
        await endpoint.stop()
        await client.stop()
        await server.stop()

    run(body())


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (lambda: settings("client", application_id="app-2"), "application app-1, this process has app-2"),
    ],
)
def test_the_handshake_names_what_differs(client: Callable[[], GrpcSettings], message: str) -> None:
    async def body() -> None:
        services = (over_grpc()[0], RpcService([GrpcTransport(client())]))
        async with echoing(services) as (endpoint, echo):
            with pytest.raises(HandshakeError, match=message):
                await echo.tick()
            assert endpoint.ticks == 0

    run(body())


def test_a_peer_of_another_authority_is_not_heard() -> None:
    async def body() -> None:
        stranger = settings("client", authority=CertificateAuthority("app-1", SystemClock()))
        services = (over_grpc()[0], RpcService([GrpcTransport(stranger)]))
        async with echoing(services) as (endpoint, echo):
            with pytest.raises(RpcUnavailableError):
                await echo.tick()
            assert endpoint.ticks == 0

    run(body())


def test_a_peer_without_certificate_is_not_heard() -> None:
    async def body() -> None:
        bare = GrpcSettings(application_id="app-1")
        services = (over_grpc()[0], RpcService([GrpcTransport(bare)]))
        async with echoing(services) as (endpoint, echo):
            with pytest.raises(RpcUnavailableError):
                await echo.tick()
            assert endpoint.ticks == 0

    run(body())


def test_the_deadline_ends_a_call_but_not_its_effect() -> None:
    async def body() -> None:
        class Slow(Echo):
            async def echo(self, text: str, times: int = 1) -> str:
                await self.gate.wait()
                self.ticks += 1
                self.waiting.set()
                return text

        server = RpcService([GrpcTransport(settings("server", bind_host="127.0.0.1"))])
        client = RpcService([GrpcTransport(settings("client", ask_timeout=4.0))])
        await server.start()
        endpoint = Slow()
        await endpoint.start()
        echo = client.connect(server.serve(ECHO, endpoint), ECHO)
        await echo.tick()
        with pytest.raises(RpcTimeoutError, match=r"4\.0 s"):
            await echo.echo("late")
        endpoint.gate.set()
        await endpoint.waiting.wait()
        assert endpoint.ticks == 2
        await endpoint.stop()
        await client.stop()
        await server.stop()

    run(body())


def test_a_peer_that_never_answers_is_given_up_after_the_connect_timeout() -> None:
    async def body(port: int) -> None:
        wanted = msgspec.structs.replace(settings("client", ask_timeout=600.0), connect_timeout=0.5)
        client = RpcService([GrpcTransport(wanted)])
        echo = client.connect(f"grpc://127.0.0.1:{port}/echo", ECHO)
        # By gRPC's own end of the connection, or by the deadline of the handshake.
        with pytest.raises((RpcTimeoutError, RpcUnavailableError), match="handshake to 127"):
            await echo.tick()
        await client.stop()

    # The kernel takes connections, and nobody reads them.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        run(body(silent.getsockname()[1]))


def test_a_port_in_use_is_named() -> None:
    async def body() -> None:
        first = GrpcTransport(settings("server", bind_host="127.0.0.1"))
        await first.start()
        taken = GrpcSettings(application_id="app-1", bind_host="127.0.0.1", port=first.port)
        with pytest.raises(AddressError, match=f"127.0.0.1:{first.port}"):
            await GrpcTransport(taken).start()
        await first.stop()

    run(body())


def test_lost_requests_lost_replies_and_overtaking() -> None:
    async def body() -> None:
        fault = ScriptedFault()
        network = FaultyNetwork(fault)
        services = (RpcService([InProcessTransport(network)]), RpcService([InProcessTransport(network)]))
        async with echoing(services) as (endpoint, echo):
            fault.drop_requests("tick")
            with pytest.raises(RpcTimeoutError):
                await echo.tick()
            assert endpoint.ticks == 0
            fault.drop_replies("tick")
            with pytest.raises(RpcTimeoutError):
                await echo.tick()
            assert endpoint.ticks == 1
            release = fault.hold("tick")
            held = asyncio.ensure_future(echo.tick())
            assert await echo.echo("overtakes") == "overtakes"
            assert endpoint.ticks == 1
            release()
            await held
            assert endpoint.ticks == 2

    run(body())


def test_state_touched_from_another_thread_is_noticed() -> None:
    async def body() -> None:
        async with echoing(in_process()) as (endpoint, _):
            with pytest.raises(WrongThreadError, match="echo"):
                await endpoint.run_blocking(endpoint.assert_main_thread)

    run(body())
