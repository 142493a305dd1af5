"""The queue of timers: order, deduplication, registration while firing, snapshots; against a plain model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.common.types import Row
from yarrow.container.state.backend import Timer
from yarrow.container.state.timers import FrozenTimers, TimerQueue
from yarrow.runtime.data.keys import NAN, canonicalize, encode_key


def drain(queue: TimerQueue, limit: int = 1 << 62) -> list[tuple[int, Any]]:
    fired: list[tuple[int, Any]] = []
    while (timer := queue.pop(limit)) is not None:
        fired.append(timer[:2])
    return fired


def queue_of(*timers: tuple[int, Any]) -> TimerQueue:
    queue = TimerQueue()
    for timestamp, key in timers:
        queue.register(timestamp, key)
    return queue


def test_timers_come_by_timestamp_then_by_the_encoding_of_the_key() -> None:
    queue = queue_of((5, "b"), (1, "z"), (5, "a"), (5, 10), (5, 9))
    keys = sorted(["a", "b", 9, 10], key=encode_key)
    assert drain(queue) == [(1, "z"), *((5, key) for key in keys)]


def test_the_limit_holds_timers_back() -> None:
    queue = queue_of((5, "a"), (6, "a"))
    assert drain(queue, 5) == [(5, "a")]
    assert queue.next_timestamp == 6
    assert len(queue) == 1


def test_a_timer_is_there_once_however_often_it_is_registered() -> None:
    queue = queue_of((5, "a"), (5, "a"), (5, "b"), (5, "a"), (5, "b"))
    assert len(queue) == 2
    assert drain(queue) == [(5, "a"), (5, "b")]


def test_namespaces_tell_timers_apart() -> None:
    queue = TimerQueue()
    for namespace in ((3, 4), (1, 2), (1, 2)):
        queue.register(5, "a", namespace)
    assert [queue.pop(9), queue.pop(9), queue.pop(9)] == [
        (5, "a", (1, 2)),
        (5, "a", (3, 4)),
        None,
    ]


def test_deleted_timers_do_not_come_also_while_their_time_is_firing() -> None:
    queue = queue_of((5, "a"), (5, "b"), (5, "c"), (7, "a"))
    queue.delete(7, "a")
    queue.delete(8, "a")
    assert queue.pop(9) == (5, "a", None)
    queue.delete(5, "b")
    queue.delete(5, "b")
    assert drain(queue) == [(5, "c")]
    assert len(queue) == 0


def test_one_deleted_and_registered_again_while_its_time_is_firing_comes_once() -> None:
    queue = queue_of((5, "a"), (5, "b"), (5, "c"))
    assert queue.pop(9) == (5, "a", None)
    queue.delete(5, "b")
    queue.register(5, "b")
    assert drain(queue) == [(5, "b"), (5, "c")]


def test_registered_while_firing_it_takes_its_place_in_the_order() -> None:
    queue = queue_of((5, "b"), (5, "d"))
    assert queue.pop(9) == (5, "b", None)
    queue.register(5, "c")
    queue.register(4, "z")
    queue.register(4, "y")
    assert drain(queue) == [(4, "y"), (4, "z"), (5, "c"), (5, "d")]


def test_canonical_keys_of_all_kinds_share_a_time() -> None:
    row = canonicalize(Row("x", 1))
    keys = [None, 1, "1", b"1", NAN, (1, None), row]
    queue = queue_of(*((5, key) for key in keys), *((5, key) for key in keys))
    assert [key for _, key in drain(queue)] == sorted(keys, key=encode_key)


def test_deleting_and_registering_for_ever_does_not_fill_the_memory() -> None:
    """The pattern of sessions: each record moves the key's timer."""
    queue = TimerQueue()
    for time in range(20_000):
        queue.register(time, "key")
        queue.delete(time - 1, "key")
    assert len(queue) == 1
    assert len(queue._times) < 5_000
    assert len(queue._buckets) == len(queue._times)
    for _ in range(20_000):
        queue.delete(19_999, "key")
        queue.register(19_999, "key")
    assert len(queue._times) < 5_000
    assert drain(queue) == [(19_999, "key")]


def test_what_a_snapshot_holds_does_not_change() -> None:
    queue = queue_of((5, "a"), (5, "b"), (7, "a"))
    cut, second = queue.snapshot_timers(), queue.snapshot_timers()
    queue.register(5, "c")
    queue.delete(5, "a")
    third = queue.snapshot_timers()
    drain(queue)
    assert len(cut) == 3
    assert set(second) == set(cut)
    assert set(third) == {Timer(5, "c"), Timer(5, "b"), Timer(7, "a")}
    assert set(cut) == {Timer(5, "a"), Timer(5, "b"), Timer(7, "a")}
    assert Timer(5, "c") not in cut


_timers = st.tuples(st.integers(0, 6), st.sampled_from(["a", "b", "c", 1, 2, None]))
_actions = st.one_of(
    st.tuples(st.just("register"), _timers),
    st.tuples(st.just("delete"), _timers),
    st.tuples(st.just("pop"), st.integers(0, 6)),
    st.tuples(st.just("restore"), st.just(0)),
)


def run(queue: TimerQueue, actions: list[tuple[str, Any]], restore: bool) -> Iterator[tuple[Any, ...] | None]:
    for what, value in actions:
        if what == "register":
            queue.register(*value)
        elif what == "delete":
            queue.delete(*value)
        elif what == "pop":
            yield queue.pop(value)
        elif restore:
            cut = list(queue.snapshot_timers())
            queue = TimerQueue()
            queue.restore_timers(reversed(cut))
    for timestamp, key in drain(queue):
        yield timestamp, key, None


def model(actions: list[tuple[str, Any]]) -> Iterator[tuple[Any, ...] | None]:
    timers: set[tuple[int, Any]] = set()

    def ordered() -> list[tuple[int, Any]]:
        return sorted(timers, key=lambda timer: (timer[0], encode_key(timer[1])))

    for what, value in actions:
        if what == "register":
            timers.add(value)
        elif what == "delete":
            timers.discard(value)
        elif what == "pop":
            first = next((timer for timer in ordered() if timer[0] <= value), None)
            timers.discard(first)
            yield None if first is None else (*first, None)
    yield from ((*timer, None) for timer in ordered())


@settings(max_examples=200, deadline=None)
@given(st.lists(_actions, max_size=60))
def test_any_use_goes_as_the_model_says_restored_or_not(actions: list[tuple[str, Any]]) -> None:
    expected = list(model(actions))
    assert list(run(TimerQueue(), actions, restore=False)) == expected
    assert list(run(TimerQueue(), actions, restore=True)) == expected


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, 1, "a", 2.5]))), st.integers(-1, 4))
def test_timers_in_any_order_are_those_up_to_the_limit_by_their_time(
    timers: list[tuple[int, Any]], limit: int
) -> None:
    queue = queue_of(*timers)
    frozen = queue.snapshot_timers()
    keys: list[Any] = []
    while (timer := queue.pop_any(limit)) is not None:
        assert timer[1] is None
        keys.append(timer[0])
    due = sorted({entry for entry in timers if entry[0] <= limit}, key=repr)
    for time in range(4):
        of_time = [key for at, key in due if at == time]
        assert sorted(map(repr, keys[: len(of_time)])) == sorted(map(repr, of_time))
        del keys[: len(of_time)]
    assert not keys
    assert len(queue) == len({*timers}) - len(due)
    assert {(each.timestamp, each.key) for each in frozen} == {*timers}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, 1, "a", 2.5]))),
    st.integers(1, 3),
    st.integers(0, 12),
)
def test_keys_that_are_taken_together_are_those_of_the_first_times(
    timers: list[tuple[int, Any]], most: int, takes: int
) -> None:
    queue = queue_of(*timers)
    frozen = queue.snapshot_timers()
    left = {*timers}
    for _ in range(takes):
        time = queue.next_timestamp
        assert time == min((at for at, _ in left), default=None)
        if time is None:
            break
        taken = {(time, key) for key in queue.take_keys(time, most)}
        assert len(taken) == min(most, sum(at == time for at, _ in left))
        assert taken <= left
        left -= taken
    assert len(queue) == len(left)
    assert {(each.timestamp, each.key) for each in queue.snapshot_timers()} == left
    assert {(each.timestamp, each.key) for each in frozen} == {*timers}


@given(
    st.sets(
        st.tuples(
            st.integers(0, 2), st.sampled_from([None, 1, "a", (1, None)]), st.sampled_from([None, (1, 2)])
        )
    ),
    st.integers(1, 4),
)
def test_frozen_timers_come_in_pieces(timers: set[tuple[int, Any, Any]], size: int) -> None:
    queue = TimerQueue()
    for timer in timers:
        queue.register(*timer)
    frozen = queue.snapshot_timers()
    assert isinstance(frozen, FrozenTimers)
    pieces = list(frozen.pieces(size))
    found = [
        timer
        for keys, (times, spaces) in pieces
        for timer in zip(times.tolist(), keys, spaces or [None] * len(keys), strict=True)
    ]
    assert sorted(found, key=repr) == sorted(timers, key=repr)
    assert all(len(keys) == size for keys, _ in pieces[:-1]) and all(keys for keys, _ in pieces)


def test_nobody_but_the_caller_holds_the_keys_of_a_piece() -> None:
    frozen = queue_of((1, "a"), (1, "b"), (2, "c")).snapshot_timers()
    assert isinstance(frozen, FrozenTimers)
    pieces = frozen.pieces(2)
    for _ in range(2):
        keys, _ = next(pieces)
        assert sys.getrefcount(keys) == 2  # `keys`, and the argument
