"""Event time through a cluster: timers of two subtasks while a split is idle, and the sessions example."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.embedded.programs import DEADLINE, run

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

# One split has a row at 5 and is silent until a timer of a key has made a file: without idleness the job would wait for
# ever. The other has rows at 0 to 9990 and stays open. Its rows wait for the row at 5, which nothing makes late.
_PROGRAM = """
from dataclasses import dataclass
from pathlib import Path
from yarrow.common import Duration, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.base import (
    Boundedness, NothingAvailable, Source, SourceReader, SourceRecords, SourceSplit,
)
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator

FIRED, BEGUN = Path("fired").absolute(), Path("begun").absolute()

@dataclass(frozen=True)
class Half(SourceSplit):
    number: int
    @property
    def split_id(self):
        return f"half {self.number}"

class Halves(Source):
    boundedness = Boundedness.CONTINUOUS_UNBOUNDED
    def create_enumerator(self, context, checkpoint=None):
        return OnRequestEnumerator(context, [Half(0), Half(1)])
    def create_reader(self, context):
        return Reader(context)

class Reader(SourceReader):
    def __init__(self, context):
        self.context, self.split, self.rows = context, None, []
    def start(self):
        self.context.request_split()
    def add_splits(self, splits):
        (self.split,) = splits
        self.rows = list(range(0, 10_000, 10)) if self.split.number == 0 else [5]
    def snapshot_state(self, checkpoint_id):
        return [self.split]
    def poll(self, max_rows):
        if self.rows and (self.split.number or BEGUN.exists()):
            rows, self.rows = self.rows[:max_rows], self.rows[max_rows:]
            return SourceRecords(rows, split_id=self.split.split_id)
        return None if FIRED.exists() and not self.rows else NothingAvailable(0.05)

class Itself(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value

class Timers(KeyedProcessFunction):
    def process_element(self, value, ctx):
        if value == 5:
            BEGUN.touch()
        ctx.timer_service().register_event_time_timer(value // 1000 * 1000 + 999)
    def on_timer(self, timestamp, ctx):
        if timestamp == 8999:
            FIRED.touch()
        yield ctx.get_current_key(), timestamp

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
strategy = (WatermarkStrategy.for_monotonous_timestamps()
    .with_timestamp_assigner(Itself()).with_idleness(Duration.of_millis(300)))
numbers = env.from_source(Halves(), strategy, "halves", Types.LONG())
numbers.key_by(lambda x: x % 7).process(Timers()).print()
env.execute("timers")
"""


def test_timers_of_two_subtasks_fire_while_a_split_is_idle(tmp_path: Path) -> None:
    outcome = run(tmp_path, _PROGRAM)
    assert outcome.status == 0, outcome.err
    expected = {(value % 7, value // 1000 * 1000 + 999) for value in [*range(0, 10_000, 10), 5]}
    rows = [eval(line.partition("> ")[2]) for line in outcome.lines]
    assert len(rows) == len(expected)
    assert set(rows) == expected
    for key in range(7):
        in_file = [eval(line.partition("> ")[2]) for line in outcome.out.splitlines()]
        times = [time for own, time in in_file if own == key]
        assert times == sorted(times)


def test_the_sessions_example() -> None:
    job = subprocess.run(
        [sys.executable, str(EXAMPLES / "sessions.py")],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        check=False,
    )
    assert job.returncode == 0, job.stderr
    assert sorted(line.partition("> ")[2] or line for line in job.stdout.splitlines()) == [
        "ann: 1 click(s) from 10:40, 0 min",
        "ann: 3 click(s) from 09:00, 20 min",
        "bob: 1 click(s) from 09:05, 0 min",
        "bob: 1 click(s) from 09:50, 0 min",
        "bob: 1 click(s) from 10:35, 0 min",
    ]
