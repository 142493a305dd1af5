"""CompletableFuture: the answer of something that is still being done.

A thin class over `concurrent.futures.Future`: completed once from any thread, waited for from any thread,
awaited from any event loop. Callbacks run in the thread that completes it, so they must not block.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, InvalidStateError
from typing import Any, Generic, TypeVar

__all__ = ["CompletableFuture"]

T = TypeVar("T")
U = TypeVar("U")


class CompletableFuture(Generic[T]):
    """A value that is there later, or the error that came in its place."""

    __slots__ = ("_future", "_why_pending")

    def __init__(self, future: Future[T] | None = None) -> None:
        self._future: Future[T] = Future() if future is None else future
        self._why_pending: Callable[[], str] | None = None

    @staticmethod
    def completed(value: U) -> CompletableFuture[U]:
        """Return a future that already has its value."""
        future: CompletableFuture[U] = CompletableFuture()
        future.complete(value)
        return future

    @staticmethod
    def failed(error: BaseException) -> CompletableFuture[Any]:
        """Return a future that already has failed."""
        future: CompletableFuture[Any] = CompletableFuture()
        future.complete_exceptionally(error)
        return future

    def complete(self, value: T) -> bool:
        """Give the value; return False, without effect, when the future was done before."""
        try:
            self._future.set_result(value)
        except InvalidStateError:
            return False
        return True

    def complete_exceptionally(self, error: BaseException) -> bool:
        """Give the error; return False, without effect, when the future was done before."""
        try:
            self._future.set_exception(error)
        except InvalidStateError:
            return False
        return True

    def cancel(self) -> bool:
        """Give up waiting.

        Return whether the future is now cancelled. The work itself continues.
        """
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Whether the future was cancelled."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Whether there is a value or an error, or the future was cancelled."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the value.

        Raises the error of the failed work, CancelledError, or TimeoutError after `timeout` seconds.
        """
        try:
            return self._future.result(timeout)
        except TimeoutError:
            raise self._explained() from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return the error, or None when there is a value.

        Raises CancelledError, or TimeoutError after `timeout` seconds.
        """
        try:
            return self._future.exception(timeout)
        except TimeoutError:
            raise self._explained() from None

    def explained_by(self, why_pending: Callable[[], str]) -> CompletableFuture[T]:
        """Let a TimeoutError of `result` and `exception` say what `why_pending` returns; return this future."""
        self._why_pending = why_pending
        return self

    def _explained(self) -> BaseException:
        """The TimeoutError of a wait, or the one that the work has ended with."""
        if self._future.done() and not self._future.cancelled() and (error := self._future.exception()):
            return error
        text = "" if self._why_pending is None else self._why_pending()
        return TimeoutError(text) if text else TimeoutError()

    def then_apply(self, function: Callable[[T], U]) -> CompletableFuture[U]:
        """Return the future of `function` applied to the value; an error or cancellation passes through."""
        following: CompletableFuture[U] = CompletableFuture()

        def follow(done: Future[T]) -> None:
            if done.cancelled():
                following.cancel()
                return
            try:
                following.complete(function(done.result()))
            except BaseException as error:
                following.complete_exceptionally(error)

        self._future.add_done_callback(follow)
        return following

    def when_complete(
        self, action: Callable[[T | None, BaseException | None], object]
    ) -> CompletableFuture[T]:
        """Call `action(value, error)`, one of them None, at the end; return this future."""

        def call(done: Future[T]) -> None:
            if not done.cancelled():
                error = done.exception()
                action(None if error is not None else done.result(), error)

        self._future.add_done_callback(call)
        return self

    def __await__(self) -> Generator[Any, None, T]:
        # Whoever awaits has imported it already; a short command would pay for the import at its start.
        import asyncio

        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "done" if self.done() else "pending"
        return f"CompletableFuture({state})"
