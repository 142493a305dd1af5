"""A worker killed while calls of an asynchronous function are under way, and the example of such functions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import DEADLINE
from tests.cluster.failover.programs import KillWhenSeen, Traced, environment, fast_in
from tests.cluster.failover.test_killed_with_state import Count
from yarrow.common import Duration, Types
from yarrow.datastream import AsyncDataStream
from yarrow.datastream.functions import AsyncFunction
from yarrow.embedded.mini_cluster import mini_cluster

pytestmark = pytest.mark.cluster
#: So many that no subtask is done before the kill lets the rows pass.
ROWS, KEYS = 40_000, 5
EXAMPLE = Path(__file__).parents[3] / "examples" / "lookups.py"


class Late(AsyncFunction[int, int]):
    """Answers after so long that some calls are always under way, and at once when rows are to pass."""

    def __init__(self, folder: Path) -> None:
        self._fast = str(fast_in(folder))

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(self._pause())
        return [value]

    def _pause(self) -> float:
        return 0.0 if os.path.exists(self._fast) else 0.05


def test_results_are_exact_after_a_kill_with_calls_under_way(tmp_path: Path) -> None:
    killer = KillWhenSeen(tmp_path)
    with mini_cluster(task_executors=1, slots=2) as cluster:
        env = environment(cluster, parallelism=2)
        env.enable_checkpointing(100)
        rows = env.from_sequence(1, ROWS).map(Traced(tmp_path, "rows"), Types.LONG())
        late = AsyncDataStream.unordered_wait(rows, Late(tmp_path), Duration.of_minutes(1), 40, Types.LONG())
        counts = late.key_by(lambda value: value % KEYS).process(Count())
        last: dict[int, int] = {}
        with counts.execute_and_collect() as found:
            killer.start()
            # Rows are collected when a checkpoint is complete, which has calls under way.
            for number, (key, count) in enumerate(found):
                last[key] = max(count, last.get(key, 0))
                if number == 100:
                    killer.seen.set()
            killer.join()
    assert last == dict.fromkeys(range(KEYS), ROWS // KEYS)
    assert killer.struck


def test_the_lookups_example() -> None:
    job = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1])},
        check=False,
    )
    assert job.returncode == 0, job.stderr
    assert [line.partition("> ")[2] or line for line in job.stdout.splitlines()] == [
        "order 1: tea, 4.50",
        "order 2: milk, 1.20",
        "order 3: bread, 3.80",
        "order 4: tea, 4.50",
        "order 5: salt, no price",
    ]
