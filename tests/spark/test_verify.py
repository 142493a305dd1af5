"""`yarrow verify` as users run it: both modes of a program, equal or with the first key that differs and its causes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

#: Seconds that both runs, or all three, may take on a busy machine.
LIMIT = 600.0

_EQUAL = """
import pathlib
from yarrow.common import Encoder, Types
from yarrow.datastream import SinkFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSink
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.enable_checkpointing(100)
env.get_checkpoint_config().set_checkpoint_storage_dir(pathlib.Path("checkpoints").absolute().as_uri())
class Appends(SinkFunction):
    def invoke(self, value, context):
        open("appended", "a").write(value)
pair = Types.TUPLE([Types.STRING(), Types.INT()])
words = env.from_collection("to be or not to be".split()).map(lambda word: (word, 1), pair)
counts = words.key_by(lambda pair: pair[0]).sum(1)
texts = counts.map(str, Types.STRING())
texts.sink_to(FileSink.for_row_format("out", Encoder.simple_string_encoder()).build()).name("files")
texts.add_sink(Appends()).name("appends")
counts.print()
for row in counts.key_by(lambda pair: pair[1]).max(0).execute_and_collect("words"):
    print("never", row)
open("done", "w").close()
"""
_DIFFERENT = """
from yarrow.common import Types, WatermarkGenerator, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import KeyedProcessFunction, StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
class ByTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]
class EachRecord(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)
    def on_periodic_emit(self, output):
        pass
class Again(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])
    def on_timer(self, timestamp, ctx):
        if timestamp < 100:
            ctx.timer_service().register_event_time_timer(timestamp + 100)
        yield ctx.get_current_key(), timestamp
class Late(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value[0], value[1], value[1] <= ctx.timer_service().current_watermark()
class Clock(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value[0], ctx.timer_service().current_processing_time()
rows = [("a", 30), ("b", 10), ("a", 10), ("a", 20), ("b", 5)]
stream = env.from_collection(rows, Types.TUPLE([Types.STRING(), Types.LONG()])).assign_timestamps_and_watermarks(
    WatermarkStrategy.for_generator(EachRecord).with_timestamp_assigner(ByTime()))
keyed = stream.key_by(lambda row: row[0])
keyed.reduce(lambda a, b: (a[0], a[1] * 2 + b[1])).print().name("reduced")
keyed.process(Again()).name("again").print().name("timers")
keyed.process(Clock()).name("clock").print().name("times")
keyed.process(Late()).name("late").print().name("lateness")
keyed.sum(1).print().name("sums")
env.execute("differs")
"""


def verify(folder: Path, text: str, *flags: str) -> tuple[int, str, str]:
    (folder / "job.py").write_text(text)
    (folder / "tmp").mkdir()
    inherited = {key: value for key, value in os.environ.items() if not key.endswith("_CONF_DIR")}
    done = subprocess.run(
        [sys.executable, "-m", "yarrow.cli.main", "verify", *flags, "job.py"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**inherited, "TMPDIR": str(folder / "tmp")},
        timeout=LIMIT,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_equal_modes_give_0_and_no_sink_of_the_program_runs(tmp_path: Path) -> None:
    status, out, err = verify(tmp_path, _EQUAL)
    assert status == 0, out + err
    head, *lines = out.splitlines()
    assert re.fullmatch(r"Job 'words', in STREAMING and in BATCH \(Spark local-\d+\):", head)
    assert sorted(lines) == sorted(
        [
            "  Sink: Collect: equal, 2 rows",
            "  Sink: Print to Std. Out: equal, 4 rows",
            "  Sink: appends: equal, 4 rows",
            "  files: Writer: equal, 4 rows",
            "The modes are equal. The first job alone was compared.",
        ]
    )
    # Nothing is written, and the program has ended at its job.
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in left] == ["job.py"], left


def test_differing_modes_give_1_with_keys_rows_and_causes(tmp_path: Path) -> None:
    status, out, err = verify(tmp_path, _DIFFERENT)
    assert status == 1, out + err
    parts = dict(re.findall(r"^  Sink: (\w+): (.*(?:\n    .*)*)", out, re.MULTILINE))
    assert parts["sums"] == "equal, 2 rows"
    assert parts["reduced"].splitlines()[:4] == [
        "differs, 2 rows in STREAMING, 2 in BATCH, 2 keys of both differ",
        "    first key, by its selector on the results: 'a'",
        "      STREAMING: ('a', 160)",
        "      BATCH: ('a', 110)",
    ]
    assert (
        "cause: The reduce of 'Keyed Reduce' depends on the order or grouping of records: of ("
        in parts["reduced"]
    )
    assert "cause: 'again' registered 5 timers in callbacks of timers." in parts["timers"]
    assert "cause: 'clock' uses processing time (current_processing_time)." in parts["times"]
    # A process function's results do not tell their key: the function itself does.
    assert parts["lateness"].splitlines()[:6] == [
        "differs, 5 rows in STREAMING, 5 in BATCH, 2 keys of both differ",
        "    first key: 'a'",
        *sorted(["      STREAMING: ('a', 10, True)", "      STREAMING: ('a', 20, True)"]),
        *sorted(["      BATCH: ('a', 10, False)", "      BATCH: ('a', 20, False)"]),
    ]
    assert "    first key: 'a'\n" in parts["timers"]
    assert "cause: In STREAMING 4 late records reached 'late', behind the watermark." in parts["lateness"]
    assert out.endswith("The modes differ in 4 of 5 sinks. The first job alone was compared.\n")


def test_a_job_that_fails_is_not_compared(tmp_path: Path) -> None:
    text = (
        "from yarrow.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection(['1', 'x7']).map(int).name('parse').print()\n"
        "env.execute('numbers')\n"
    )
    status, out, err = verify(tmp_path, text)
    assert (status, out) == (2, "")
    assert "the job 'numbers' failed in STREAMING:\n" in err
    assert "ValueError: invalid literal for int() with base 10: 'x7'" in err
