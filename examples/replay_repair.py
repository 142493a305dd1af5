"""A bug repaired by replay: a savepoint from before the bug, the fixed program, and the log read again from there.

python examples/replay_repair.py                      the whole course, on a cluster of its own
yarrow run -d examples/replay_repair.py --log FOLDER  the job alone, which adds up the payments in a growing log

The log is a folder of text files with lines `account,kind,cents`. Version 2 of the job takes refunds for payments. Its
totals are wrong from the day on which it was deployed; the savepoint that was taken before holds totals and positions
in the log of that moment, so the fixed version goes on from there as if the wrong one had never run.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from yarrow.common import Configuration, JobClient, Types, WatermarkStrategy
from yarrow.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from yarrow.datastream.connectors.file_system import FileSource, StreamFormat
from yarrow.state_processor import SavepointReader, StateProcessorError

MONDAY = ["ann,payment,1000", "bob,payment,500", "ann,refund,300"]
TUESDAY = ["bob,refund,500", "ann,payment,250", "cid,payment,40"]
RIGHT = {"ann": 950, "bob": 0, "cid": 40}


class Totals(KeyedProcessFunction[str, str, tuple[str, int]]):
    """The balance of each account: payments less refunds. The wrong one adds refunds too."""

    def __init__(self, wrong: bool) -> None:
        self._wrong = wrong

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.lines = runtime_context.get_state(ValueStateDescriptor("lines", Types.LONG()))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        account, kind, cents = value.split(",")
        sign = -1 if kind == "refund" and not self._wrong else 1
        total = (self.total.value() or 0) + sign * int(cents)
        self.total.update(total)
        self.lines.update((self.lines.value() or 0) + 1)
        yield account, total


def start(log: str, *, wrong: bool = False, savepoint: str | None = None) -> JobClient:
    """The job over all files of the folder and those to come, from a savepoint where one is named."""
    config = Configuration()
    if savepoint is not None:
        # What `yarrow run -s PATH` sets.
        config.set_string("execution.state-recovery.path", savepoint)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), log)
    lines = env.from_source(
        source.monitor_continuously(timedelta(milliseconds=100)).build(),
        WatermarkStrategy.no_watermarks(),
        "log",
    ).uid("log")
    totals = lines.key_by(lambda line: line.partition(",")[0], Types.STRING()).process(Totals(wrong))
    totals.uid("totals").name("totals").print().uid("print")
    return env.execute_async("payments")


def totals_in(savepoint: str) -> tuple[dict[str, int], int]:
    """The balances in a savepoint, and how many lines they are of."""
    with SavepointReader.read(savepoint) as reader:
        totals = reader.read_keyed_state("totals", "total")
        lines = reader.read_keyed_state("totals", "lines")
    balances = zip(totals["key"].to_pylist(), totals["value"].to_pylist(), strict=True)
    return dict(balances), sum(lines["value"].to_pylist())


def savepoint_at(client: JobClient, folder: str, lines: int) -> str:
    """The first savepoint that has so many lines of the log in it."""
    while True:
        taken = client.trigger_savepoint(folder)
        # A job whose tasks are still being deployed takes none.
        if taken.exception() is None:
            try:
                if totals_in(taken.result())[1] == lines:
                    return taken.result()
            except StateProcessorError:
                pass  # nothing was read yet: the operator has no state
        threading.Event().wait(0.1)


def cancel(job: JobClient) -> None:
    """Cancels a job and waits for its end."""
    job.cancel().result()
    job.get_job_execution_result().exception()


def demonstration(folder: str) -> dict[str, int]:
    """Monday, a wrong Tuesday, the repair; gives the balances at its end."""
    log, savepoints = Path(folder, "log"), f"{folder}/savepoints"
    log.mkdir()
    (log / "monday").write_text("\n".join(MONDAY) + "\n")
    job = start(str(log))
    before = savepoint_at(job, savepoints, len(MONDAY))
    cancel(job)
    print(f"Monday:   {totals_in(before)[0]}, kept in {before}")

    job = start(str(log), wrong=True, savepoint=before)
    (log / "tuesday").write_text("\n".join(TUESDAY) + "\n")
    wrong = savepoint_at(job, savepoints, len(MONDAY) + len(TUESDAY))
    cancel(job)
    print(f"Tuesday:  {totals_in(wrong)[0]}, which is wrong")

    job = start(str(log), savepoint=before)
    repaired = savepoint_at(job, savepoints, len(MONDAY) + len(TUESDAY))
    cancel(job)
    balances, _ = totals_in(repaired)
    print(f"Repaired: {balances}")
    return balances


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Repairs a bug by replay.")
    parser.add_argument("--log", help="a folder of log files: runs the job over it")
    parser.add_argument("--wrong", action="store_true", help="the version with the bug")
    arguments = parser.parse_args()
    if arguments.log:
        start(arguments.log, wrong=arguments.wrong)
    else:
        with tempfile.TemporaryDirectory() as folder:
            assert demonstration(folder) == RIGHT
