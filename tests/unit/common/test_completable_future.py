"""CompletableFuture: completed once, waited for, awaited, chained."""

from __future__ import annotations

import asyncio

import pytest

from yarrow.common import CompletableFuture


def test_only_the_first_completion_counts() -> None:
    future: CompletableFuture[int] = CompletableFuture()
    assert not future.done()
    assert future.complete(1)
    assert not future.complete(2)
    assert not future.complete_exceptionally(RuntimeError())
    assert future.result() == 1
    assert future.exception() is None


def test_an_error_is_raised_by_result_and_passed_on() -> None:
    future: CompletableFuture[int] = CompletableFuture()
    following = future.then_apply(lambda value: value + 1)
    future.complete_exceptionally(KeyError("x"))
    with pytest.raises(KeyError):
        future.result()
    assert isinstance(following.exception(), KeyError)


def test_then_apply_takes_the_value_and_keeps_its_own_error() -> None:
    assert CompletableFuture.completed(2).then_apply(lambda value: value * 3).result() == 6
    assert isinstance(
        CompletableFuture.completed(0).then_apply(lambda value: 1 // value).exception(), ZeroDivisionError
    )


def test_cancelling_passes_on() -> None:
    future: CompletableFuture[int] = CompletableFuture()
    following = future.then_apply(str)
    assert future.cancel()
    assert future.cancelled() and following.cancelled()
    assert not future.complete(1)


def test_it_can_be_awaited() -> None:
    async def wait() -> int:
        return await CompletableFuture.completed(5)

    assert asyncio.run(wait()) == 5


def test_when_complete_sees_value_or_error() -> None:
    seen: list[tuple[int | None, BaseException | None]] = []
    error = RuntimeError("x")
    CompletableFuture.completed(1).when_complete(lambda value, failure: seen.append((value, failure)))
    CompletableFuture.failed(error).when_complete(lambda value, failure: seen.append((value, failure)))
    assert seen == [(1, None), (None, error)]
