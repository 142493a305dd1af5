"""Workers killed under a job with keyed state and checkpoints: the counts are those of a run without faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import DEADLINE, wait_until
from tests.cluster.failover.programs import Trace, Traced, environment, run_fast
from yarrow.common import Types
from yarrow.datastream import KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from yarrow.datastream.state import ValueState
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

pytestmark = pytest.mark.cluster
#: So many that no subtask is done before the test lets the rows pass.
ROWS, KEYS = 50_000, 5


class Count(KeyedProcessFunction[int, int, tuple[int, int]]):
    """Counts the rows of each key."""

    _count: ValueState[int]

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value % KEYS, count


def killed_twice(cluster: MiniCluster, folder: Path) -> dict[int, int]:
    """The last count of each key of a job whose workers are killed as checkpoints complete."""
    env = environment(cluster, parallelism=2)
    env.enable_checkpointing(100)
    counts = env.from_sequence(1, ROWS).map(Traced(folder, "rows")).key_by(lambda value: value % KEYS)
    trace = Trace(folder)
    seen = threading.Event()

    def kill() -> None:
        for attempt in (0, 1):
            wait_until(lambda attempt=attempt: trace.pid("rows", attempt, attempt) > 0)  # type: ignore[misc]
            seen.clear()
            seen.wait(DEADLINE)
            trace.kill("rows", attempt, attempt)
        run_fast(folder)

    killer = threading.Thread(target=kill)
    last: dict[int, int] = {}
    with counts.process(Count()).execute_and_collect() as rows:
        killer.start()
        for number, (key, count) in enumerate(rows):
            last[key] = max(count, last.get(key, 0))
            if number % 300 == 299:
                seen.set()
        killer.join()
    return last


@pytest.mark.parametrize("slots", [1, 2], ids=["two executors", "one executor"])
def test_counts_are_exact_after_kills(slots: int, tmp_path: Path) -> None:
    with mini_cluster(task_executors=2 // slots, slots=slots) as cluster:
        assert killed_twice(cluster, tmp_path) == dict.fromkeys(range(KEYS), ROWS // KEYS)
    assert list(tmp_path.glob("rows-*-2")), "both kills struck"
