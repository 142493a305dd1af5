"""`replay-dead-letters` in processes of its own: each letter once, also when the run is killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import Table
from pyarrow.dataset import dataset

from tests.cluster.embedded.programs import DEADLINE, Outcome
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.datastream.connectors.dead_letter_table.letter_columns import batch_of_letters, letters_of_batch
from yarrow.datastream.connectors.dead_letters import (
    LAST_OF_MATCH,
    PAIR_OF_INPUTS,
    RECORD_TYPED,
    DeadLetter,
)
from yarrow.runtime.data.serializers.serializers import serializer_for

pytestmark = pytest.mark.cluster

ROWS = 3_000

#: Kills the client once, when letters have been committed, and writes files with each checkpoint.
_KILLING = """class KillsClient(MapFunction, CheckpointListener):
    def __init__(self, mark, pid, kills=True):
        self.mark, self.pid, self.kills, self.complete = Path(mark), pid, kills, False

    def open(self, context):
        self.pause = threading.Event()

    def notify_checkpoint_complete(self, checkpoint_id):
        self.complete = True

    def map(self, value):
        if self.kills and not self.mark.exists():
            if self.complete and any(Path(out).glob("letters/*/[!._]*")):
                self.mark.touch()
                os.kill(self.pid, signal.SIGKILL)
                self.pause.wait()
            self.pause.wait(0.0002)
        return value


def files(name):
    sink = FileSink.for_row_format(f"{out}/{name}", Encoder.simple_string_encoder())
    return sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
"""
#: Numbers that end with an argument fail at `parse`. The client is killed once, when letters have been committed.
_JOB = (
    """
import os, signal, sys, threading
from pathlib import Path
from yarrow.common import Encoder, Types
from yarrow.datastream import CheckpointListener, MapFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.dead_letter_table import DeadLetterTable
from yarrow.datastream.connectors.file_system import FileSink, RollingPolicy

refused, out, mark = sys.argv[1], os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3])


"""
    + _KILLING
    + """


def parse(number):
    if str(number).endswith(refused):
        raise ValueError(f"no {number}")
    return number


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1).enable_checkpointing(50)
numbers = env.from_sequence(1, ROWS).uid("numbers").map(lambda number: number, Types.LONG()).uid("same")
parsed = numbers.map(parse, Types.LONG()).uid("parse").on_error("dead_letter", max_share=0.5)
kept = parsed.map(KillsClient(mark, os.getpid()), Types.LONG()).uid("killing")
sums = kept.key_by(lambda number: number % 2).reduce(lambda a, b: a + b).uid("sums").map(str, Types.STRING())
sums.uid("texts").sink_to(files("sums")).uid("sums in files")
kept.map(str, Types.STRING()).uid("rows").sink_to(files("rows")).uid("rows in files")
if "table" in sys.argv:
    parsed.dead_letters().sink_to(DeadLetterTable(f"{out}/letters")).uid("letters in a table")
else:
    letters = parsed.dead_letters().map(DeadLetter.to_json, Types.STRING()).uid("lines")
    letters.sink_to(files("letters")).uid("letters in files")
env.execute("numbers")
""".replace("ROWS", str(ROWS))
)


def yarrow(folder: Path, *arguments: str, program: str = _JOB) -> Outcome:
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "config.yaml").write_text(
        f"env.pid.dir: {folder / 'pids'}\nexecution.checkpointing.dir: {folder / 'checkpoints'}\n"
    )
    (folder / "job.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "yarrow.cli.main", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "YARROW_CONF_DIR": str(conf)},
        timeout=DEADLINE,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def lines_in(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return [line for path in files for line in path.read_text().splitlines()]


def latest_checkpoint(folder: Path) -> str:
    found = [path.parent for path in (folder / "checkpoints").rglob("_metadata")]
    return str(max(found, key=lambda path: int(path.name.removeprefix("chk-"))))


def letters_of(numbers: Iterable[int]) -> list[DeadLetter]:
    serializer = serializer_for(Types.LONG())
    made = (DeadLetter("", -1, serializer.dump_rows([each]), "no", operator="parse") for each in numbers)
    return [each._replace(encoding=RECORD_TYPED, record_type=str(Types.LONG())) for each in made]


def write_lines(file: Path, letters: Iterable[DeadLetter]) -> None:
    file.write_text("".join(each.to_json() + "\n" for each in letters))


def letters_in(folder: Path) -> list[DeadLetter]:
    """The letters of a table, or of files of lines."""
    if not any(folder.glob("day=*")):
        return [DeadLetter.from_json(line) for line in lines_in(folder)]
    batches = dataset(folder, partitioning="hive").to_table().to_batches()
    return [letter for batch in batches for letter in letters_of_batch(batch)]


@pytest.mark.parametrize("kind", ["lines", "table"])
def test_a_replay_that_is_killed_goes_on_from_its_checkpoint(kind: str, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    first, second = letters_of(range(0, 1500)), letters_of(range(1500, ROWS))
    if kind == "table":
        for day, letters in (("day=2026-11-29", first), ("day=2026-11-30", second)):
            (tmp_path / "letters" / day).mkdir()
            # Some rows of a group are read before the kill, and the others behind it.
            pq.write_table(
                Table.from_batches([batch_of_letters(letters)]), tmp_path / "letters" / day / "part"
            )
        replay = ["table:letters", "job.py", "99", "out", "mark", "table"]
    else:
        write_lines(tmp_path / "letters" / "first", first)
        write_lines(tmp_path / "letters" / "second", second)
        replay = ["letters", "job.py", "99", "out", "mark"]
    killed = yarrow(tmp_path, "replay-dead-letters", "--rows-per-second", "1000", *replay)
    assert killed.status == -signal.SIGKILL, killed.err
    assert len(lines_in(tmp_path / "out" / "rows")) < ROWS
    outcome = yarrow(tmp_path, "replay-dead-letters", "-s", latest_checkpoint(tmp_path), *replay)
    # The numbers of the program's own source did not come: those that are there were in letters.
    again = [number for number in range(ROWS) if str(number).endswith("99")]
    assert outcome.status == 2, outcome.err
    rest = [str(number) for number in range(ROWS) if number not in again]
    assert Counter(lines_in(tmp_path / "out" / "rows")) == Counter(rest)
    found = letters_in(tmp_path / "out" / "letters")
    assert Counter(letter.error for letter in found) == Counter(f"ValueError: no {each}" for each in again)
    total = f"Dead letters: {ROWS} replayed, {len(again)} refused again, 0 skipped"
    assert outcome.out.splitlines()[-2:] == [
        f"Dead letters of 'parse': {ROWS} replayed, {len(again)} refused again, 0 skipped",
        total,
    ]


def test_letters_join_a_program_that_goes_on_from_a_savepoint(tmp_path: Path) -> None:
    killed = yarrow(tmp_path, "run", "job.py", "7", "out", "mark")
    assert killed.status == -signal.SIGKILL, killed.err
    refused = lines_in(tmp_path / "out" / "letters")
    assert refused
    (tmp_path / "letters").write_text("".join(line + "\n" for line in refused))
    checkpoint = latest_checkpoint(tmp_path)
    replay = ["letters", "job.py", "none", "out", "mark"]
    outcome = yarrow(tmp_path, "replay-dead-letters", "-s", checkpoint, *replay)
    assert outcome.status == 0, outcome.err
    # The checkpoint may have had letters in files that nobody saw before.
    late = Counter(lines_in(tmp_path / "out" / "letters")) - Counter(refused)
    unseen = {DeadLetter.from_json(line).error.removeprefix("ValueError: no ") for line in late}
    numbers = {str(number) for number in range(1, ROWS + 1)} - unseen
    assert Counter(lines_in(tmp_path / "out" / "rows")) == Counter(numbers)
    sums = [int(line) for line in lines_in(tmp_path / "out" / "sums")]
    for rest in (0, 1):
        assert sum(int(each) for each in numbers if int(each) % 2 == rest) in sums
    assert f"Dead letters: {len(refused)} replayed, 0 refused again, 0 skipped" in outcome.out


_BATCH_JOB = """
import os, sys
from yarrow.common import Encoder, Types
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.file_system import FileSink

refused, out = sys.argv[1], os.path.abspath(sys.argv[2])


def parse(number):
    if str(number).endswith(refused):
        raise ValueError(f"no {number}")
    return number


def files(name):
    return FileSink.for_row_format(f"{out}/{name}", Encoder.simple_string_encoder()).build()


env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC).set_parallelism(1)
parsed = env.from_sequence(1, 100).map(parse, Types.LONG()).uid("parse").on_error("dead_letter", max_share=0.5)
sums = parsed.key_by(lambda number: number % 2).reduce(lambda a, b: a + b).map(str, Types.STRING())
sums.sink_to(files("sums"))
parsed.dead_letters().map(DeadLetter.to_json, Types.STRING()).sink_to(files("letters"))
env.execute("numbers in batch")
"""


def test_letters_of_a_batch_program_are_replayed_in_batch(tmp_path: Path) -> None:
    first = yarrow(tmp_path, "run", "job.py", "7", "out", program=_BATCH_JOB)
    assert first.status == 0, first.err
    refused = [number for number in range(1, 101) if number % 10 == 7]
    assert sorted(map(int, lines_in(tmp_path / "out" / "sums"))) == [2500 - sum(refused), 2550]
    (tmp_path / "letters").write_text("".join(f"{line}\n" for line in lines_in(tmp_path / "out" / "letters")))

    replay = ["letters", "job.py", "97", "again"]
    outcome = yarrow(tmp_path, "replay-dead-letters", "-s", "gone", *replay, program=_BATCH_JOB)
    assert outcome.status == 1 and "gone" in outcome.err, outcome.err
    assert not (tmp_path / "again").exists()

    slowed = ["--rows-per-second", "100"]
    outcome = yarrow(tmp_path, "replay-dead-letters", *slowed, *replay, program=_BATCH_JOB)
    # A batch job gives one sum of a key, and that of the letters alone.
    assert outcome.status == 2, outcome.err
    assert lines_in(tmp_path / "again" / "sums") == [str(sum(refused) - 97)]
    (letter,) = lines_in(tmp_path / "again" / "letters")
    assert DeadLetter.from_json(letter).error == "ValueError: no 97"
    assert "Dead letters: 10 replayed, 1 refused again, 0 skipped" in outcome.out


#: Numbers meet themselves. A pair whose number ends with an argument fails. The client is killed as in the other job.
_JOINING_JOB = (
    """
import os, signal, sys, threading
from pathlib import Path
from yarrow.common import Encoder, Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import (
    CheckpointListener, MapFunction, ProcessJoinFunction, RuntimeExecutionMode, StreamExecutionEnvironment,
)
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.file_system import FileSink, RollingPolicy

mode, refused, out, mark = sys.argv[1], sys.argv[2], os.path.abspath(sys.argv[3]), os.path.abspath(sys.argv[4])


"""
    + _KILLING
    + """


class Numbered(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Shown(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        if str(left[1]).endswith(refused):
            raise ValueError(f"no {left[1]}")
        times = ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp()
        yield " ".join(map(str, (*left, *right, *times)))


env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode[mode]).set_parallelism(2).enable_checkpointing(50)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbered())
pair = Types.TUPLE([Types.LONG(), Types.LONG()])
numbers = env.from_sequence(1, 40).uid("numbers").map(lambda number: (number % 5, number), pair).uid("pairs")
timed = numbers.assign_timestamps_and_watermarks(strategy).uid("times")
left, right = (timed.key_by(lambda row: row[0], Types.LONG()) for _ in range(2))
joined = left.interval_join(right).between(Time.milliseconds(0), Time.milliseconds(0))
shown = joined.process(Shown(), Types.STRING()).uid("join").on_error("dead_letter", max_share=0.5)
kept = shown.map(KillsClient(mark, os.getpid(), mode == "STREAMING"), Types.STRING()).uid("killing").set_parallelism(1)
kept.sink_to(files("rows")).uid("rows in files").set_parallelism(1)
letters = shown.dead_letters().map(DeadLetter.to_json, Types.STRING()).uid("lines").set_parallelism(1)
letters.sink_to(files("letters")).uid("letters in files").set_parallelism(1)
env.execute("joined numbers")
"""
)


def letters_of_pairs(numbers: Iterable[int]) -> list[DeadLetter]:
    row = Types.TUPLE([Types.LONG(), Types.LONG()])
    declared = Types.TUPLE([row, row])
    serializer = serializer_for(declared)
    return [
        DeadLetter(
            "",
            -1,
            serializer.dump_rows([((number % 5, number), (number % 5, number))]),
            "no",
            operator="join",
            encoding=RECORD_TYPED,
            record_type=str(declared),
            input=PAIR_OF_INPUTS,
            timestamp=number,
            row_times=(number, number + 1),
        )
        for number in numbers
    ]


def joined(number: int) -> str:
    return f"{number % 5} {number} {number % 5} {number} {number} {number + 1} {number}"


def test_pairs_of_a_join_are_joined_once_over_a_kill(tmp_path: Path) -> None:
    write_lines(tmp_path / "letters", letters_of_pairs(range(ROWS)))
    replay = ["letters", "job.py", "STREAMING", "99", "out", "mark"]
    slowed = ["--rows-per-second", "1000"]
    killed = yarrow(tmp_path, "replay-dead-letters", *slowed, *replay, program=_JOINING_JOB)
    assert killed.status == -signal.SIGKILL, killed.err
    assert len(lines_in(tmp_path / "out" / "rows")) < ROWS
    checkpoint = latest_checkpoint(tmp_path)
    outcome = yarrow(tmp_path, "replay-dead-letters", "-s", checkpoint, *replay, program=_JOINING_JOB)
    again = [number for number in range(ROWS) if str(number).endswith("99")]
    assert outcome.status == 2, outcome.err
    rest = [joined(number) for number in range(ROWS) if number not in again]
    assert Counter(lines_in(tmp_path / "out" / "rows")) == Counter(rest)
    found = letters_in(tmp_path / "out" / "letters")
    # They are as they were, so that they can be replayed again.
    assert {letter.raw for letter in found} == {letter.raw for letter in letters_of_pairs(again)}
    assert Counter(letter.row_times for letter in found) == Counter((each, each + 1) for each in again)
    assert f"Dead letters: {ROWS} replayed, {len(again)} refused again, 0 skipped" in outcome.out


def test_pairs_of_a_join_in_batch(tmp_path: Path) -> None:
    first = yarrow(tmp_path, "run", "job.py", "AUTOMATIC", "7", "out", "mark", program=_JOINING_JOB)
    assert first.status == 0, first.err
    refused = [number for number in range(1, 41) if number % 10 == 7]
    assert len(lines_in(tmp_path / "out" / "rows")) == 36
    (tmp_path / "letters").write_text("".join(f"{line}\n" for line in lines_in(tmp_path / "out" / "letters")))
    replay = ["letters", "job.py", "AUTOMATIC", "37", "again", "mark"]
    outcome = yarrow(tmp_path, "replay-dead-letters", *replay, program=_JOINING_JOB)
    assert outcome.status == 2, outcome.err
    rest = [
        f"{number % 5} {number} {number % 5} {number} {number} {number} {number}" for number in refused[:-1]
    ]
    assert Counter(lines_in(tmp_path / "again" / "rows")) == Counter(rest)
    assert "Dead letters: 4 replayed, 1 refused again, 0 skipped" in outcome.out


#: A number and the one behind it match. A match whose first number ends with an argument fails, and so does a partial
#: one. The client is killed as in the other job.
_MATCHING_JOB = (
    """
import os, signal, sys, threading
from pathlib import Path
import pyarrow as pa
from yarrow.cep import CEP, Pattern, PatternProcessFunction, TimedOutPartialMatchHandler
from yarrow.common import Encoder, Row, Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import CheckpointListener, MapFunction, OutputTag, RuntimeExecutionMode
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.file_system import FileSink, RollingPolicy
from yarrow.table.expressions import col

kind, mode, refused, out, mark = sys.argv[1:4] + [os.path.abspath(each) for each in sys.argv[4:6]]


"""
    + _KILLING
    + """


class Numbered(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


late = OutputTag("timed out", Types.STRING())


class Shown(PatternProcessFunction, TimedOutPartialMatchHandler):
    def shown(self, match, ctx):
        if str(match["first"][0][1]).endswith(refused):
            raise ValueError(f"no {match['first'][0][1]}")
        return " ".join(f"{step} {[row[1] for row in rows]}" for step, rows in match.items()) + f" {ctx.timestamp()}"

    def process_match(self, match, ctx):
        yield self.shown(match, ctx)

    def process_timed_out_match(self, match, ctx):
        yield late, self.shown(match, ctx)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode[mode]).set_parallelism(2).enable_checkpointing(50)
row = Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()])
numbers = env.from_sequence(1, 40).uid("numbers").map(lambda n: Row(key=n % 5, number=n), row).uid("rows")
if kind == "columns":
    schema = pa.schema([("key", pa.int64()), ("number", pa.int64())])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("number")
    keyed = numbers.to_arrow(schema).assign_timestamps_and_watermarks(strategy).uid("times").key_by("key")
    first, last = col("number") <= 20, col("number").in_(*range(2, 41, 2))
else:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbered())
    timed = numbers.assign_timestamps_and_watermarks(strategy).uid("times")
    keyed = timed.key_by(lambda row: row[0], Types.LONG())
    first, last = lambda row: row[1] <= 20, lambda row: row[1] % 2 == 0
pattern = Pattern.begin("first").where(first).next("last").where(last).within(Time.milliseconds(6))
found = CEP.pattern(keyed, pattern).process(Shown(), Types.STRING()).uid("pattern")
found = found.on_error("dead_letter", max_share=0.9)
timed_out = found.get_side_output(late)
kept = found.union(timed_out).map(KillsClient(mark, os.getpid(), mode == "STREAMING"), Types.STRING()).uid("killing")
kept.set_parallelism(1).sink_to(files("rows")).uid("rows in files").set_parallelism(1)
letters = found.dead_letters().map(DeadLetter.to_json, Types.STRING()).uid("lines").set_parallelism(1)
letters.sink_to(files("letters")).uid("letters in files").set_parallelism(1)
env.execute("matched numbers")
"""
)


def letters_of_matches(numbers: Iterable[int]) -> list[DeadLetter]:
    row = Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()])
    serializer = serializer_for(row)
    rows = {number: [Row(key=0, number=number), Row(key=0, number=number + 1)] for number in numbers}
    return [
        DeadLetter(
            "",
            -1,
            serializer.dump_rows([last]),
            "no",
            operator="pattern",
            encoding=RECORD_TYPED,
            record_type=str(row),
            input=LAST_OF_MATCH,
            timestamp=number,
            steps=("first", "last"),
            rows=serializer.dump_rows([first, last]),
            match_time=number,
            timed_out=number % 3 == 0,
        )
        for number, (first, last) in rows.items()
    ]


def test_matches_are_given_to_their_function_once_over_a_kill(tmp_path: Path) -> None:
    write_lines(tmp_path / "letters", letters_of_matches(range(ROWS)))
    replay = ["letters", "job.py", "rows", "STREAMING", "99", "out", "mark"]
    slowed = ["--rows-per-second", "1000"]
    killed = yarrow(tmp_path, "replay-dead-letters", *slowed, *replay, program=_MATCHING_JOB)
    assert killed.status == -signal.SIGKILL, killed.err
    assert len(lines_in(tmp_path / "out" / "rows")) < ROWS
    checkpoint = latest_checkpoint(tmp_path)
    outcome = yarrow(tmp_path, "replay-dead-letters", "-s", checkpoint, *replay, program=_MATCHING_JOB)
    again = [number for number in range(ROWS) if str(number).endswith("99")]
    assert outcome.status == 2, outcome.err
    rest = [number for number in range(ROWS) if number not in again]
    shown = [f"first [{number}] last [{number + 1}] {number}" for number in rest]
    assert Counter(lines_in(tmp_path / "out" / "rows")) == Counter(shown)
    found = letters_in(tmp_path / "out" / "letters")
    # They are as they were, so that they can be replayed again.
    told = Counter((letter.rows, letter.match_time, letter.timed_out) for letter in found)
    assert told == Counter(
        (letter.rows, letter.match_time, letter.timed_out) for letter in letters_of_matches(again)
    )
    assert f"Dead letters: {ROWS} replayed, {len(again)} refused again, 0 skipped" in outcome.out


@pytest.mark.parametrize("kind", ["rows", "columns"])
def test_matches_of_a_program_in_batch(kind: str, tmp_path: Path) -> None:
    first = yarrow(tmp_path, "run", "job.py", kind, "AUTOMATIC", "", "out", "mark", program=_MATCHING_JOB)
    assert first.status == 0, first.err
    assert lines_in(tmp_path / "out" / "rows") == []
    (tmp_path / "letters").write_text("".join(f"{line}\n" for line in lines_in(tmp_path / "out" / "letters")))
    replay = ["--trust-pickles", "letters", "job.py", kind, "AUTOMATIC", "7", "again", "mark"]
    outcome = yarrow(tmp_path, "replay-dead-letters", *replay, program=_MATCHING_JOB)
    assert outcome.status == 2, outcome.err
    # The number behind one of a key is five more. An even one makes a match, and an odd one ends it.
    shown = [f"first [{n}] last [{n + 5}] {n + 5}" for n in range(1, 21) if n % 2 and n % 10 != 7]
    assert Counter(lines_in(tmp_path / "again" / "rows")) == Counter(shown)
    again = letters_in(tmp_path / "again" / "letters")
    assert sorted(letter.error.partition(";")[0] for letter in again) == [
        "ValueError: no 17",
        "ValueError: no 7",
    ]
    assert "Dead letters: 10 replayed, 2 refused again, 0 skipped" in outcome.out


#: A window of ten numbers fails that has a number which ends with an argument.
_WINDOW_JOB = """
import os, sys
from yarrow.common import Encoder, Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.file_system import FileSink
from yarrow.datastream.functions import ProcessWindowFunction
from yarrow.datastream.window import TumblingEventTimeWindows

refused, out = sys.argv[1], os.path.abspath(sys.argv[2])


class Numbered(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


class Shown(ProcessWindowFunction):
    def process(self, key, context, elements):
        if any(str(number).endswith(refused) for number in elements):
            raise ValueError(f"no {refused}")
        yield f"{context.window().start} {key} {sorted(elements)}"


def files(name):
    return FileSink.for_row_format(f"{out}/{name}", Encoder.simple_string_encoder()).build()


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1).enable_checkpointing(100)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbered())
numbers = env.from_sequence(0, 99).map(lambda number: number, Types.LONG())
keyed = numbers.assign_timestamps_and_watermarks(strategy).key_by(lambda number: number % 2, Types.LONG())
windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
shown = windows.process(Shown(), Types.STRING()).uid("windows").on_error("dead_letter")
shown.sink_to(files("rows"))
shown.dead_letters().map(DeadLetter.to_json, Types.STRING()).sink_to(files("letters"))
env.execute("numbers in windows")
"""


def test_rows_of_windows_make_the_same_windows(tmp_path: Path) -> None:
    first = yarrow(tmp_path, "run", "job.py", "7", "out", program=_WINDOW_JOB)
    assert first.status == 0, first.err
    shown = lines_in(tmp_path / "out" / "rows")
    assert len(shown) == 10
    (tmp_path / "letters").write_text("".join(f"{line}\n" for line in lines_in(tmp_path / "out" / "letters")))
    replay = ["letters", "job.py", "none", "again"]
    outcome = yarrow(tmp_path, "replay-dead-letters", *replay, program=_WINDOW_JOB)
    assert outcome.status == 0, outcome.err
    windows = [
        f"{start} {key} {[*range(start + key, start + 10, 2)]}"
        for start in range(0, 100, 10)
        for key in (0, 1)
    ]
    assert Counter(lines_in(tmp_path / "again" / "rows") + shown) == Counter(windows)
    assert "Dead letters: 50 replayed, 0 refused again, 0 skipped" in outcome.out


_CHAINED_JOB = """
import os, sys
from yarrow.common import Encoder, Types, WatermarkStrategy
from yarrow.datastream import OutputTag, StreamExecutionEnvironment
from yarrow.datastream.connectors import DEAD_LETTERS, DeadLetter
from yarrow.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from yarrow.datastream.connectors.hybrid_source import HybridSource

charset, out = sys.argv[1], os.path.abspath(sys.argv[2])


def lines(path, charset):
    text = StreamFormat.text_line_format(charset)
    return FileSource.for_record_stream_format(text, path).on_error("dead_letter").build()


def files(name):
    return FileSink.for_row_format(f"{out}/{name}", Encoder.simple_string_encoder()).build()


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
both = HybridSource.builder(lines("first", "ascii")).add_source(lines("second", charset)).build()
read = env.from_source(both, WatermarkStrategy.no_watermarks(), "both").uid("both")
read.sink_to(files("rows"))
read.get_side_output(OutputTag(DEAD_LETTERS)).map(DeadLetter.to_json, Types.STRING()).sink_to(files("letters"))
env.execute("both")
"""


def test_letters_of_a_chain_of_sources_are_read_by_their_source(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(f"good {name}\nbäd {name}\n".encode("latin-1"))
    first = yarrow(tmp_path, "run", "job.py", "utf-8", "out", program=_CHAINED_JOB)
    assert first.status == 0, first.err
    (tmp_path / "letters").write_text("".join(f"{line}\n" for line in lines_in(tmp_path / "out" / "letters")))
    replay = ["replay-dead-letters", "letters", "job.py", "latin-1", "again"]
    outcome = yarrow(tmp_path, *replay, program=_CHAINED_JOB)
    # The second source is repaired, and the first is not.
    assert outcome.status == 2, outcome.err
    assert lines_in(tmp_path / "again" / "rows") == ["bäd second"]
    (letter,) = (DeadLetter.from_json(line) for line in lines_in(tmp_path / "again" / "letters"))
    assert (letter.split, letter.places) == ("first", (0,))
    assert "Dead letters of 'both': 2 replayed, 1 refused again, 0 skipped" in outcome.out


def test_a_letter_without_its_operator_is_refused_before_anything_runs(tmp_path: Path) -> None:
    write_lines(tmp_path / "letters", (each._replace(operator="gone") for each in letters_of([1, 2])))
    outcome = yarrow(tmp_path, "replay-dead-letters", "letters", "job.py", "7", "out", "mark")
    assert outcome.status == 1 and "has been submitted" not in outcome.out
    assert "no operator for the dead letters of 'gone' (2)" in outcome.err
    assert not (tmp_path / "out").exists()
