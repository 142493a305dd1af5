"""Patterns in bounded streams give what the model says, whatever the order of the chunks and the parallelism."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from tests.support.batch_runner import collect, shuffled
from tests.support.pattern_model import Kind, Whole, all_matches
from tests.unit.runtime.graph.programs import environment
from yarrow.cep import CEP, PatternProcessFunction, TimedOutPartialMatchHandler
from yarrow.common import Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.table.expressions import col

SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("letter", pa.string())])
#: Few rows in memory, so that some are sorted on disk.
SMALL = {"execution.batch.max-rows": "20"}
WHOLES = [
    Whole((Kind("a", "a"), Kind("b", "b"), Kind("c", "c")), 90),
    Whole((Kind("a", "a"), Kind("n", "b", "not_followed_by")), 50),
]


class Second(TimestampAssigner):
    """The time is the second field of a record."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Shown(PatternProcessFunction, TimedOutPartialMatchHandler):
    def process_match(self, match: Any, ctx: Any) -> Iterable[Any]:
        yield tuple((name, tuple(row)) for name, rows in match.items() for row in rows), ctx.timestamp()

    def process_timed_out_match(self, match: Any, ctx: Any) -> Iterable[Any]:
        return []


@pytest.mark.slow
@pytest.mark.parametrize("whole", WHOLES, ids=["by records", "by time"])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("form", ["keyed", "columns", "whole"])
def test_matches_of_bounded_streams(whole: Whole, parallelism: int, form: str) -> None:
    keyed = form != "whole"
    for seed in range(3):
        chosen = random.Random(seed)
        keys = range(12) if keyed else [0]
        times = random.Random(seed).sample(range(1000), 40 if keyed else 12)
        rows = [(chosen.choice(keys), time, chosen.choice("abcx")) for time in times]
        env = environment(parallelism)
        stream: Any = env.from_collection(rows, Types.TUPLE([Types.LONG(), Types.LONG(), Types.STRING()]))
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
        stream = stream.assign_timestamps_and_watermarks(strategy)
        pattern = whole.pattern(lambda row: row[2])
        if form == "columns":
            stream = stream.to_arrow(SCHEMA).key_by("key")
            pattern = whole.pattern_of(lambda letters: col("letter").in_(*letters))
        elif keyed:
            stream = stream.key_by(lambda row: row[0])
        found = collect(
            env,
            CEP.pattern(stream, pattern).process(Shown()),
            settings=SMALL,
            deal=shuffled(seed),
        )
        expected: Counter[Any] = Counter()
        for key in keys:
            own = sorted((row for row in rows if row[0] == key), key=lambda row: row[1])
            for match in all_matches(whole, [(row[2], row[1]) for row in own]):
                expected[tuple((name, own[at]) for name, at in match.taken), match.time] += 1
        assert Counter(found) == expected
