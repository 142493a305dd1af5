"""Timers through a snapshot of the heap backend: the rest fires as it would have, at any parallelism."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.state.contexts import MAX_PARALLELISM, context, snapshot_of
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.timers import TimerQueue
from yarrow.runtime.data.key_groups import key_group_of, operator_index_for_key_group

_keys = st.one_of(
    st.integers(-3, 3), st.sampled_from(["a", "b", "c"]), st.none(), st.tuples(st.integers(0, 2))
)
_timers = st.lists(st.tuples(st.integers(-2, 5), _keys), max_size=40)


def drain(queue: TimerQueue) -> list[tuple[int, Any, Any]]:
    fired = []
    while (timer := queue.pop(1 << 62)) is not None:
        fired.append(timer)
    return fired


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@settings(max_examples=40, deadline=None)
@given(timers=_timers, before=st.integers(0, 20))
def test_what_a_snapshot_left_to_fire_comes_in_the_same_order(
    parallelism: int, timers: list[tuple[int, Any]], before: int
) -> None:
    queue = TimerQueue()
    backend = HeapKeyedStateBackend(context())
    backend.register_timers("_timer_state/event_timers", queue)
    for timestamp, key in timers:
        queue.register(timestamp, key)
    for _ in range(before):
        queue.pop(1 << 62)
    handles = snapshot_of(backend)
    rest = drain(queue)
    for subtask in range(parallelism):
        restored = TimerQueue()
        part = HeapKeyedStateBackend(context(subtask=subtask, parallelism=parallelism, restored=handles))
        part.register_timers("_timer_state/event_timers", restored)
        assert drain(restored) == [timer for timer in rest if owner(timer[1], parallelism) == subtask]


def owner(key: Any, parallelism: int) -> int:
    return operator_index_for_key_group(MAX_PARALLELISM, parallelism, key_group_of(key, MAX_PARALLELISM))
