"""RocksDB against a model: all state kinds, random operations, checkpoints, savepoints and restores among them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.state.rocksdb.storage import CHECKPOINT, SAVEPOINT, Worker
from tests.unit.container.state.test_heap_backend import KEYS, KINDS, OPERATIONS, Model, States
from yarrow.common.typeinfo import Types
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.datastream.functions import AggregateFunction
from yarrow.datastream.state import AggregatingStateDescriptor, ReducingStateDescriptor
from yarrow.runtime.data.key_groups import key_group_of
from yarrow.runtime.data.keys import canonicalize

STEPS = st.sampled_from(["chunk", "prefetch", "announce", "checkpoint", "savepoint", "abort", "restore"])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(OPERATIONS, OPERATIONS, STEPS), max_size=60), st.booleans())
def test_it_is_what_the_model_is_through_checkpoints_and_restores(
    steps: list[Any], object_reuse: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(Path(folder))
        backend = worker.backend(object_reuse=object_reuse)
        states, model = States(backend), Model()
        kept: tuple[Any, dict[Any, Any]] = ((), Model().all(KEYS))
        for number, step in enumerate(steps):
            if isinstance(step, tuple):
                operation, kind, key = step
                if operation == "change":
                    states.change(kind, key, number)
                    model.change(kind, key, number)
                else:
                    states.clear(kind, key)
                    model.clear(kind, key)
            elif step == "chunk":
                backend.end_of_chunk()
            elif step == "prefetch":
                backend.prefetch(KEYS)
            elif step == "announce":
                backend.announce_checkpoint(number)
            elif step == "abort":
                worker.snapshot(backend, number)
                backend.checkpoint_aborted(number)
                worker.storage.delete_but(kept[0])
            elif step == "restore":
                assert states.all(KEYS) == model.all(KEYS)
                worker.dispose(backend)
                backend = worker.backend(kept[0], object_reuse=object_reuse)
                states = States(backend)
                assert states.all(KEYS) == kept[1]
                model = Model()
                for key in KEYS:
                    for kind in KINDS:
                        states.clear(kind, key)
            else:
                options = SAVEPOINT if step == "savepoint" else CHECKPOINT
                pending = backend.snapshot(number, options)
                at_cut = model.all(KEYS)
                # What happens behind the cut is no part of it.
                states.change("list", 0, number)
                model.change("list", 0, number)
                kept = (pending.write(worker.storage), at_cut)
                backend.checkpoint_completed(number)
                worker.storage.delete_but(kept[0])
        assert states.all(KEYS) == model.all(KEYS)
        worker.close()


@pytest.mark.slow
@pytest.mark.parametrize("options", [CHECKPOINT, SAVEPOINT], ids=["native", "canonical"])
@pytest.mark.parametrize("other", [False, True], ids=["rocksdb", "heap-between"])
def test_rescaled_again_and_again_every_kind_is_the_same(worker: Worker, options: Any, other: bool) -> None:
    if other and options is CHECKPOINT:
        options = SAVEPOINT  # the heap reads the canonical form only
    keys = [*range(60), *(f"k{n}" for n in range(60)), (1, 2), None, 2.5]
    golden = Model()

    def backends(parallelism: int, handles: Any, heap: bool) -> list[KeyedStateBackend]:
        if heap:
            return [
                HeapKeyedStateBackend(worker.context(handles, subtask=n, parallelism=parallelism))
                for n in range(parallelism)
            ]
        return [worker.backend(handles, subtask=n, parallelism=parallelism) for n in range(parallelism)]

    current = backends(2, (), False)
    for number, following in enumerate((3, 1, 4, None)):
        owners: list[tuple[Any, States]] = [(b.context.key_groups, States(b)) for b in current]  # type: ignore[attr-defined]
        for key in keys:
            group = key_group_of(canonicalize(key), 16)
            for groups, states in owners:
                if groups.holds(group):
                    for kind in KINDS:
                        states.change(kind, key, number % 7)
            for kind in KINDS:
                golden.change(kind, key, number % 7)
        found: dict[Any, Any] = {}
        for groups, states in owners:
            found |= states.all([key for key in keys if groups.holds(key_group_of(canonicalize(key), 16))])
        assert found == golden.all(keys)
        if following is not None:
            handles = [handle for b in current for handle in worker.snapshot(b, number, options)]
            current = backends(following, handles, other and number == 1)


class Balance(AggregateFunction[int, int | None, int]):
    """None where the sum is zero."""

    def create_accumulator(self) -> int | None:
        return 0

    def add(self, value: int, accumulator: int | None) -> int | None:
        return (accumulator or 0) + value or None

    def get_result(self, accumulator: int | None) -> int:
        assert accumulator is not None
        return accumulator

    def merge(self, acc_a: int | None, acc_b: int | None) -> int | None:
        return (acc_a or 0) + (acc_b or 0) or None


def settled(first: int, second: int) -> Any:
    return first + second or None


@pytest.mark.parametrize("heap", [True, False])
def test_a_function_that_leaves_none_leaves_nothing(worker: Worker, heap: bool) -> None:
    backend: KeyedStateBackend = HeapKeyedStateBackend(worker.context()) if heap else worker.backend()
    reducing = backend.reducing_state(ReducingStateDescriptor("reducing", settled, Types.LONG()))
    aggregating = backend.aggregating_state(
        AggregatingStateDescriptor("aggregating", Balance(), Types.LONG())
    )
    backend.current_key = 1
    for state in (reducing, aggregating):
        for number, expected in ((5, 5), (-5, None), (7, 7), (1, 8), (-8, None)):
            state.add(number)
            assert state.get() == expected
    assert list(backend.state_keys("reducing")) == list(backend.state_keys("aggregating")) == []
