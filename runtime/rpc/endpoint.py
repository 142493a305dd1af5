"""RpcEndpoint: a component whose state is touched on one event loop only, and its receiver.

Owner: the loop on which `start` ran. Blocking calls go through `run_blocking`; nothing else may leave the
loop. Must not know a transport: a Receiver turns encoded calls into method calls after the fencing check.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.rpc.errors import EndpointNotFoundError, EndpointStoppedError, LeaderTokenError
from yarrow.runtime.rpc.gateway_type import GatewayType, MethodSchema

G = TypeVar("G")
T = TypeVar("T")
_log = logging.getLogger(__name__)


class WrongThreadError(YarrowError):
    """State of an endpoint was touched outside its own event loop: a programming error."""


class RpcEndpoint:
    """Base of the components: life cycle, owner loop, fencing token, background work."""

    def __init__(self, name: str, fencing_token: str | None = None) -> None:
        """`fencing_token` None = calls are not fenced (a TaskExecutor has no leader)."""
        self.name = name
        self.fencing_token = fencing_token
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        self._running = False
        self._stop_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._executor: ThreadPoolExecutor | None = None
        self._checks = os.environ.get("YARROW_DEBUG") == "1"

    @property
    def is_running(self) -> bool:
        """True between start and stop, while calls are accepted."""
        return self._running

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The owner loop; raises before `start`."""
        if self._loop is None:
            raise YarrowError(f"the endpoint {self.name} has not been started")
        return self._loop

    async def start(self) -> None:
        """Makes the running loop the owner, and accepts calls from now on."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._running = True
        await self.on_start()

    async def stop(self) -> None:
        """Runs `on_stop`, then accepts no calls and cancels background work.

        Idempotent: a concurrent second call waits for the first.
        """
        async with self._stop_lock:
            if not self._running:
                return
            self.assert_main_thread()
            await self.on_stop()
            self._running = False
            current = asyncio.current_task()
            tasks = [task for task in self._tasks if task is not current]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._executor is not None:
                self._executor.shutdown(wait=False, cancel_futures=True)

    async def on_start(self) -> None:
        """The component's first work; runs on the owner loop."""

    async def on_stop(self) -> None:
        """The component's last work, while its calls still function."""

    def on_background_failure(self, error: BaseException) -> None:
        """Called when work of `spawn` failed; the default logs the error."""
        _log.error("%s: background work failed", self.name, exc_info=error)

    def assert_main_thread(self) -> None:
        """With YARROW_DEBUG=1, raises WrongThreadError unless the owner loop is running this code."""
        if self._checks and threading.get_ident() != self._thread:
            raise WrongThreadError(
                f"{self.name}: touched from thread {threading.current_thread().name}, but its state"
                " belongs to its event loop: use call_soon_threadsafe"
            )

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Runs `work` beside the endpoint's calls; `stop` cancels it."""
        self.assert_main_thread()
        task = self.loop.create_task(work, name=f"{self.name}/{name}")
        self._tasks.add(task)
        task.add_done_callback(self._background_done)
        return task

    def _background_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.on_background_failure(error)

    def run_call(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Like `spawn`, for a call whose caller gets the error."""
        task = self.loop.create_task(work, name=f"{self.name}/{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run_blocking(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Runs a blocking call in the endpoint's threads, and returns its result on the loop."""
        self.assert_main_thread()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=4, thread_name_prefix=f"{self.name}-blocking")
        return await self.loop.run_in_executor(self._executor, functools.partial(function, *args, **kwargs))


class Receiver(Generic[G]):
    """An endpoint behind its gateway: decodes, checks the token, calls, encodes. Each served endpoint has one."""

    def __init__(self, gateway: GatewayType[G], endpoint: RpcEndpoint) -> None:
        missing = [name for name in gateway.methods if not callable(getattr(endpoint, name, None))]
        if missing:
            raise TypeError(f"{type(endpoint).__name__} lacks methods of {gateway.name}: {missing}")
        self._gateway = gateway
        self._endpoint = endpoint

    @property
    def gateway_name(self) -> str:
        """The served gateway."""
        return self._gateway.name

    @property
    def endpoint(self) -> RpcEndpoint:
        """The called endpoint."""
        return self._endpoint

    async def receive(self, method_name: str, token: str | None, arguments: bytes) -> bytes:
        """The encoded reply to an encoded call, from any loop. Errors become replies."""
        method = self._gateway.method(method_name)
        endpoint = self._endpoint
        if not endpoint.is_running:
            return method.encode_error(EndpointNotFoundError(f"{endpoint.name} is not running"))
        if asyncio.get_running_loop() is endpoint.loop:
            return await self._receive(method, token, arguments)
        remote = asyncio.run_coroutine_threadsafe(self._receive(method, token, arguments), endpoint.loop)
        return await asyncio.wrap_future(remote)

    async def _receive(self, method: MethodSchema, token: str | None, arguments: bytes) -> bytes:
        try:
            self._check_token(method, token)
            call = getattr(self._endpoint, method.name)(*method.decode_call(arguments))
            task = self._endpoint.run_call(call, method.name)
            # A caller that gives up must not leave a mutation half done; a waiting call is simply cancelled.
            result = await (task if method.waits else asyncio.shield(task))
            return method.encode_result(result)
        except asyncio.CancelledError:
            if self._endpoint.is_running:
                raise
            return method.encode_error(EndpointStoppedError(f"{self._endpoint.name} was stopped"))
        except Exception as error:
            if not isinstance(error, YarrowError):
                _log.warning("the RPC method %s.%s failed", self._endpoint.name, method.name, exc_info=error)
            return method.encode_error(error)

    def _check_token(self, method: MethodSchema, token: str | None) -> None:
        expected = self._endpoint.fencing_token
        if expected is not None and token != expected:
            raise LeaderTokenError(
                f"{self._endpoint.name} refuses {method.name}: the message bears the token {token}, the"
                f" leader's is {expected}. The sender must look up the present leader and register again"
            )
