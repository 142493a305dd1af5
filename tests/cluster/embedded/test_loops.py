"""Loops through a cluster: a worker killed with records in the loop, and a savepoint for another parallelism."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import DEADLINE, wait_until
from tests.cluster.failover.programs import KillWhenSeen, Traced, environment, run_fast
from yarrow.common import Types, WatermarkStrategy
from yarrow.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.testing.gated_source import GatedSource

EXAMPLE = Path(__file__).parents[3] / "examples" / "parcels.py"

pytestmark = pytest.mark.cluster

SPLITS, ROWS_OF_SPLIT, KEYS, ROUNDS = 4, 1500, 7, 4
ROWS = SPLITS * ROWS_OF_SPLIT
STEP = Types.TUPLE([Types.LONG(), Types.LONG()])


class Counted(KeyedProcessFunction[int, Any, Any]):
    """Counts visits of a key; the last two fields are the key and its count."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield *value, ctx.get_current_key(), count


def number_of(row: Any) -> int:
    """The number of a row of the source, from 1 on."""
    split, _, index = row[2].partition(":")
    return int(split) * ROWS_OF_SPLIT + int(index) + 1


def loop(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    """Every visit of every number, each of which goes round ROUNDS times between the keys.

    However slow the machine is, some numbers come behind the first checkpoint, and some behind `let_end`.
    """
    source = GatedSource("", str(folder), splits=SPLITS, rows=ROWS_OF_SPLIT, keys=1)
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers = rows.map(number_of, Types.LONG()).map(Traced(folder, "rows"), Types.LONG()).uid("rows")
    steps = numbers.map(lambda number: (number, ROUNDS), STEP).iterate().uid("loop")
    keyed = steps.key_by(lambda step: (step[0] + step[1]) % KEYS, Types.LONG())
    visits = keyed.process(Counted(), Types.TUPLE([Types.LONG()] * 4)).uid("visits")
    again = visits.filter(lambda visit: visit[1] > 0).map(lambda visit: (visit[0], visit[1] - 1), STEP)
    steps.close_with(again)
    return visits


def let_end(folder: Path) -> None:
    """Lets the last numbers come, and all of them fast."""
    run_fast(folder)
    (folder / "fired").touch()


class KillThenLetEnd(KillWhenSeen):
    """Holds the last numbers back until the worker has been killed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._let_end = partial(let_end, folder)

    def run(self) -> None:
        super().run()
        self._let_end()


def check_exact(found: Iterable[Any]) -> None:
    """Each visit once, and counts without gaps."""
    visits = list(found)
    expected = Counter((number, left) for number in range(1, ROWS + 1) for left in range(ROUNDS + 1))
    assert Counter((number, left) for number, left, _, _ in visits) == expected
    counts: dict[int, list[int]] = {}
    for _, _, key, count in visits:
        counts.setdefault(key, []).append(count)
    assert all(sorted(of_key) == list(range(1, len(of_key) + 1)) for of_key in counts.values())


@pytest.mark.parametrize("unaligned", [False, True])
def test_a_killed_worker_loses_and_doubles_nothing_in_the_loop(tmp_path: Path, unaligned: bool) -> None:
    killer = KillThenLetEnd(tmp_path)
    with mini_cluster(task_executors=2, slots=1) as cluster:
        env = environment(cluster, parallelism=2)
        env.enable_checkpointing(100)
        env.get_checkpoint_config().enable_unaligned_checkpoints(unaligned)
        found = []
        with loop(env, tmp_path).execute_and_collect() as results:
            killer.start()
            for visit in results:
                found.append(visit)
                if len(found) == 20:
                    killer.seen.set()
            killer.join()
    check_exact(found)
    assert killer.struck


def test_a_savepoint_that_stops_a_loop_is_restored_at_another_parallelism(tmp_path: Path) -> None:
    told = tmp_path / "told"
    path = str(told)

    def write(visit: Any) -> Any:
        with open(path, "a") as file:
            file.write(" ".join(map(str, visit)) + "\n")
        return visit

    def lines() -> list[tuple[int, ...]]:
        return [tuple(map(int, line.split())) for line in told.read_text().splitlines()]

    with mini_cluster(task_executors=1, slots=3) as cluster:
        env = environment(cluster, parallelism=2)
        loop(env, tmp_path).map(write).uid("write").print()
        client = cluster.submit(env.get_job_graph("loop"))
        wait_until(lambda: told.exists() and len(lines()) > 50)
        savepoint = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
        stopped = len(lines())
        let_end(tmp_path)
        env = environment(cluster, parallelism=3)
        # The source waits for a checkpoint behind 40 % of its rows.
        env.enable_checkpointing(100)
        env.get_configuration().set_string("execution.state-recovery.path", savepoint)
        loop(env, tmp_path).map(write).uid("write").print()
        cluster.submit(env.get_job_graph("loop")).get_job_execution_result().result()
    assert 50 < stopped < ROWS * (ROUNDS + 1) // 2
    check_exact(lines())


def test_the_parcels_example() -> None:
    job = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1])},
        check=False,
    )
    assert job.returncode == 0, job.stderr
    ways = {1: "Ham Han Fra", 2: "Fra Mun Ham", 3: "Mun", 4: "Han Fra Mun Ham"}
    expected = [f"parcel {number} at {depot}" for number, way in ways.items() for depot in way.split()]
    assert sorted(line.partition("> ")[2] for line in job.stdout.splitlines()) == sorted(expected)
