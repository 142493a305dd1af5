"""Native checkpoints at other parallelisms: what was removed meanwhile stays removed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.container.state.contexts import MAX_PARALLELISM
from tests.unit.container.state.rocksdb.storage import Worker
from yarrow.common import Types
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.datastream.state import MapState, MapStateDescriptor
from yarrow.runtime.data.key_groups import KeyGroupRange, key_group_of, key_group_range_for_operator_index
from yarrow.runtime.snapshot.handles import KeyedStateHandle

KEYS = [f"user {number}" for number in range(40)]
NUMBERS: MapStateDescriptor[str, int] = MapStateDescriptor("numbers", Types.STRING(), Types.LONG())


class Subtasks:
    """The backends of one operator with a map state; each is given the snapshots of its key groups."""

    def __init__(
        self,
        worker: Worker,
        parallelism: int,
        checkpoint: int = -1,
        restored: Iterable[KeyedStateHandle] = (),
    ) -> None:
        self._worker = worker
        self.all: list[tuple[KeyGroupRange, KeyedStateBackend, MapState[str, int]]] = []
        snapshots = list(restored)
        for index in range(parallelism):
            groups = key_group_range_for_operator_index(MAX_PARALLELISM, parallelism, index)
            own = [
                each
                for each in snapshots
                if groups.intersection(KeyGroupRange(*each.key_groups)).number_of_key_groups
            ]
            backend = worker.backend(own, subtask=index, parallelism=parallelism, checkpoint_id=checkpoint)
            self.all.append((groups, backend, backend.map_state(NUMBERS)))

    def map_of(self, key: str) -> MapState[str, int]:
        """The map of a key, in the backend whose key it is."""
        group = key_group_of(key, MAX_PARALLELISM)
        for groups, backend, state in self.all:
            if groups.start <= group <= groups.end:
                backend.current_key = key
                return state
        raise AssertionError(key)

    def content(self) -> dict[str, dict[str, int]]:
        return {key: found for key in KEYS if (found := dict(self.map_of(key).items()))}

    def rescaled(self, parallelism: int, checkpoint: int) -> Subtasks:
        parts: list[Any] = []
        for _, backend, _ in self.all:
            backend.end_of_chunk()
            parts += self._worker.snapshot(backend, checkpoint)
        for _, backend, _ in self.all:
            self._worker.dispose(backend)
        return Subtasks(self._worker, parallelism, checkpoint, parts)


@pytest.fixture
def worker(tmp_path: Path) -> Iterable[Worker]:
    made = Worker(tmp_path)
    yield made
    made.close()


def test_what_was_removed_at_a_higher_parallelism_does_not_come_back_at_a_lower(worker: Worker) -> None:
    subtasks = Subtasks(worker, 1)
    for key in KEYS:
        subtasks.map_of(key).put("a", 1)
    subtasks = subtasks.rescaled(2, 1)
    for key in KEYS[::2]:
        subtasks.map_of(key).remove("a")
    subtasks = subtasks.rescaled(1, 2)
    assert subtasks.content() == {key: {"a": 1} for key in KEYS[1::2]}


def test_entries_of_other_key_groups_in_a_database_that_is_opened_do_not_count(worker: Worker) -> None:
    subtasks = Subtasks(worker, 2)
    foreign = next(key for key in KEYS if key_group_of(key, MAX_PARALLELISM) >= MAX_PARALLELISM // 2)
    _, first, state = subtasks.all[0]
    first.current_key = foreign
    state.put("left", 1)
    assert subtasks.rescaled(1, 1).content() == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_rescales_never_change_what_the_maps_hold(worker: Worker, seed: int) -> None:
    chance = random.Random(seed)
    subtasks, model = Subtasks(worker, 2), dict[str, dict[str, int]]()
    for checkpoint in range(1, 11):
        for step in range(60):
            key, name = chance.choice(KEYS), f"n{chance.randrange(6)}"
            if chance.random() < 0.5:
                subtasks.map_of(key).put(name, step)
                model.setdefault(key, {})[name] = step
            else:
                subtasks.map_of(key).remove(name)
                model.get(key, {}).pop(name, None)
        subtasks = subtasks.rescaled(chance.choice([1, 2, 3, 4]), checkpoint)
        assert subtasks.content() == {key: entries for key, entries in model.items() if entries}
