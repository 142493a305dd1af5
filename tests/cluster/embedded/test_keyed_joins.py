"""Delayed and immediate joins of rows through a cluster, one of whose workers is killed: what they keep comes back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.failover.programs import KillWhenSeen, Traced, environment
from yarrow.common import Duration, Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import DataStream, KeyedStream, ProcessJoinFunction
from yarrow.embedded.mini_cluster import mini_cluster

pytestmark = pytest.mark.cluster

#: So many that no subtask is done before the kill lets the rows pass.
ROWS, KEYS, DELAY = 30_000, 5, 40
NAMES = [(key, f"name {key}") for key in range(KEYS)]


class Itself(TimestampAssigner):
    """The time of a number is the number."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    """Both rows, with the name of the join."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield self._name, left, right


def by_key(numbers: DataStream) -> KeyedStream:
    return numbers.key_by(lambda number: number % KEYS)


def both_joins(numbers: DataStream, names: DataStream) -> DataStream:
    """Numbers with some of their batch, and every fourth number with the name of its key."""
    left, right = by_key(numbers), by_key(numbers.filter(lambda number: number % 16 == 0))
    delayed = left.delayed_join(right).after(Time.milliseconds(DELAY)).process(Pairs("delayed"))
    visits = by_key(numbers.filter(lambda number: number % 4 == 0))
    named = names.key_by(lambda name: name[0]).immediate_join(visits).latest_only().right_outer()
    return delayed.union(named.process(Pairs("immediate")))


def pairs_of_batches() -> Counter[Any]:
    """Numbers of a key that lie in one batch: the first one begins with the first number of the key."""
    batches = defaultdict(list)
    for number in range(1, ROWS + 1):
        batches[number % KEYS, (number - (number % KEYS or KEYS)) // DELAY].append(number)
    return Counter(
        (left, right) for batch in batches.values() for left in batch for right in batch if right % 16 == 0
    )


def test_delayed_and_immediate_joins_outlive_a_killed_worker(tmp_path: Path) -> None:
    killer = KillWhenSeen(tmp_path)
    delayed: Counter[Any] = Counter()
    named: dict[int, list[Any]] = defaultdict(list)
    with mini_cluster(task_executors=2, slots=1) as cluster:
        env = environment(cluster, parallelism=2)
        env.enable_checkpointing(100)
        env.get_config().set_auto_watermark_interval(20)
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1))
        rows = env.from_sequence(1, ROWS).map(Traced(tmp_path, "rows"), Types.LONG())
        timed = rows.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Itself()))
        with both_joins(timed, env.from_collection(NAMES)).execute_and_collect() as results:
            killer.start()
            for join, left, right in results:
                if join == "delayed":
                    delayed[left, right] += 1
                else:
                    named[right % KEYS].append((left, right))
                if delayed and all(any(left for left, _ in named[key]) for key in range(KEYS)):
                    killer.seen.set()
            killer.join()
    assert delayed == pairs_of_batches()
    for key in range(KEYS):
        assert sorted(right for _, right in named[key]) == [
            number for number in range(4, ROWS + 1, 4) if number % KEYS == key
        ]
        # A name that has come is known from then on, also behind the kill.
        lefts = [left for left, _ in named[key]]
        unknown = lefts.count(None)
        assert lefts == [None] * unknown + [NAMES[key]] * (len(lefts) - unknown)
    assert killer.struck
