"""A driver that does not answer at first: asked again while it runs, and said what to do when it has ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.secrets import skein_pair
from yarrow.runtime.yarn.skein_bridge import SkeinClientGateway
from yarrow.runtime.yarn.skein_driver import SkeinDriver

PAIR = skein_pair(SystemClock())


class Served(SkeinDriver):
    """A driver whose gRPC server is this process, and whose process is one that sleeps."""

    def __init__(self, port: int) -> None:
        super().__init__(PAIR, {}, {})
        self._port = port
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )

    def address(self) -> str:
        self._address = f"127.0.0.1:{self._port}"
        return self._address

    def dies(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def driver(answers: Callable[[str, int], bool]) -> Iterator[Served]:
    """`answers(method, number)`: whether the call of that number, counted by method from 1, is answered."""
    calls: dict[str, int] = {}

    def handle(method: str) -> grpc.RpcMethodHandler:
        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            calls[method] = calls.get(method, 0) + 1
            if not answers(method, calls[method]):
                context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)

    methods = {name: handle(name) for name in ("ping", "getAllQueues", "submit")}
    certificate, key = PAIR
    credentials = grpc.ssl_server_credentials([(key, certificate)], certificate, require_client_auth=True)
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("skein.Driver", methods),))
        port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        served = Served(port)
        try:
            yield served
        finally:
            served.close()
            server.stop(None).wait()


def test_a_driver_that_is_slow_to_answer_is_asked_again() -> None:
    with driver(lambda method, number: number > 2) as served:
        gateway = SkeinClientGateway(served, PAIR, SystemClock())
        assert gateway.queues() == []
        gateway.close()


def test_a_driver_that_has_ended_is_not_waited_for() -> None:
    def answers(method: str, number: int) -> bool:
        if method != "ping":
            served.dies()
        return method == "ping"

    with driver(answers) as served:
        gateway = SkeinClientGateway(served, PAIR, SystemClock())
        with pytest.raises(YarnError, match=r"was killed by signal 9.*run the command again"):
            gateway.queues()
        gateway.close()


def test_one_that_runs_and_never_answers_is_given_up_with_a_word_on_what_to_do() -> None:
    with driver(lambda method, number: method == "ping") as served:
        gateway = SkeinClientGateway(served, PAIR, SystemClock(), patience=0.01)
        with pytest.raises(YarnError, match=r"list the queues.*overloaded.*yarn application -list"):
            gateway.queues()
        gateway.close()
