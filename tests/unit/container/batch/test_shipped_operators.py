"""Operators that the engine does not bring run in batch jobs as they are: each key has a watermark of its own."""

from __future__ import annotations

from collections import Counter, defaultdict

import pyarrow as pa
import pytest

from tests.support.batch_runner import collect, collecting_graph, run_batch, shuffled
from tests.support.lookup import looked_up
from tests.support.numbering import numbered
from tests.support.window_sums import summed_by_window
from tests.unit.container.batch.test_keyed_tasks import Row, timed
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types

ROWS: list[Row] = [(f"k{n % 7}", n * 37 % 200, n) for n in range(300)]


def test_state_of_each_key_begins_anew() -> None:
    env = environment()
    found = collect(env, numbered(timed(env, ROWS).key_by(lambda row: row[0])))
    by_key = defaultdict(list)
    for number, row in found:
        by_key[row[0]].append((number, row[1]))
    assert len(by_key) == 7
    for numbers in by_key.values():
        assert [number for number, _ in numbers] == list(range(1, len(numbers) + 1))
        assert [time for _, time in numbers] == sorted(time for _, time in numbers)


@pytest.mark.parametrize("seed", range(2))
def test_windows_fire_at_the_end_of_each_key_and_nothing_is_late(seed: int) -> None:
    env = environment(3)
    sums = summed_by_window(
        timed(env, [(key, time, 0) for key, time, _ in ROWS]).key_by(lambda row: row[0]), 50
    )
    found = collect(env, sums, deal=shuffled(seed))
    # The operator sums the second field, which is the time here.
    expected: Counter[tuple[str, int]] = Counter()
    for key, time, _ in ROWS:
        expected[key, time // 50 * 50] += time
    assert {(key, start): total for key, start, total in found} == dict(expected)
    assert len(found) == len(expected)


def test_two_keyed_inputs_of_columns_meet() -> None:
    facts = pa.schema([("city", pa.string()), ("amount", pa.int64())])
    table = pa.schema([("name", pa.string()), ("price", pa.int64())])
    env = environment(2)
    both = Types.TUPLE([Types.STRING(), Types.LONG()])
    sold = env.from_collection([(f"c{n % 9}", n) for n in range(100)], both).rebalance().to_arrow(facts)
    prices = env.from_collection([(f"c{n}", n * 10) for n in range(9)], both).rebalance().to_arrow(table)
    joined = looked_up(sold.key_by("city"), prices.key_by("name")).to_rows()
    run = run_batch(collecting_graph(env, joined), deal=shuffled(1))
    assert sorted(tuple(row) for row in run.rows()) == sorted(
        (f"c{n % 9}", n, n % 9 * 10) for n in range(100)
    )
