"""Memory of an embedded cluster that runs a job without input, parallelism 2: client, TaskExecutor, workers, all of it.

Prints the proportional set size of the whole process tree in MB after `seconds` of rest. The job (`--job`) is the keyed
job with a source that never has anything. Started from the root of the checkout as `python -m bench.programs.idle`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors import (
    Boundedness,
    NothingAvailable,
    OneByOneReader,
    OnRequestEnumerator,
    Sink,
    SinkWriter,
    SinkWriterContext,
    Source,
    SourceReaderContext,
    SourceSplit,
    SplitEnumeratorContext,
)


class NoSplit(SourceSplit):
    """A split in which nothing ever comes."""

    @property
    def split_id(self) -> str:
        return "nothing"


class SilentSource(Source[int, NoSplit]):
    """Never ends and never has a record."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[NoSplit], checkpoint: object = None
    ) -> OnRequestEnumerator[NoSplit]:
        return OnRequestEnumerator(context, [NoSplit() for _ in range(context.parallelism)])

    def create_reader(self, context: SourceReaderContext) -> SilentReader:
        return SilentReader(context)


class SilentReader(OneByOneReader[int, NoSplit]):
    """Waits to be woken."""

    def open_split(self, split: NoSplit) -> None:
        self._split = split

    def read_split(self, max_rows: int) -> NothingAvailable:
        return NothingAvailable()

    def current_split(self) -> NoSplit:
        return NoSplit()


class Dropping(SinkWriter[object]):
    """Takes rows and forgets them."""

    def write(self, rows: Sequence[object], timestamps: Sequence[int | None] | None) -> None:
        pass


class DroppingSink(Sink[object]):
    """Where nothing arrives."""

    def create_writer(self, context: SinkWriterContext, restored: Sequence[object] = ()) -> Dropping:
        return Dropping()


def job() -> None:
    """Submits the job, says so, and waits for Ctrl-C."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"parallelism.default": "2"})
    )
    pairs = env.from_source(SilentSource(), WatermarkStrategy.no_watermarks(), "silence", Types.LONG()).map(
        lambda x: (x % 1000, 1), Types.TUPLE([Types.LONG(), Types.LONG()])
    )
    sums = pairs.key_by(lambda pair: pair[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
    sums.filter(lambda pair: pair[1] % 2 == 0).sink_to(DroppingSink())
    client = env.execute_async("bench idle")
    wait_until_running(client)
    print("running", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        client.get_job_execution_result().result()


def wait_until_running(client: Any) -> None:
    """Returns when every task runs; a job counts as running before it has slots."""
    while True:
        details = client.get_job_details().result()
        states = {attempt.state.name for vertex in details.vertices for attempt in vertex.subtasks}
        if states == {"RUNNING"}:
            return
        time.sleep(0.02)


def measure(seconds: int) -> None:
    """The job in a process of its own, looked at from here."""
    from bench.process_trees import memory, running, tree

    with running([sys.executable, __file__, "0", "--job"]) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "running\n":
            raise SystemExit("the idle job did not start")
        time.sleep(seconds)
        pids = tree(process.pid)
        megabytes = memory(pids, "Pss") / 1e6
    print(json.dumps({"value": round(megabytes, 1), "unit": "MB", "processes": len(pids)}))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("seconds", type=int)
    arguments.add_argument("--job", action="store_true", help="run the job itself until Ctrl-C")
    given = arguments.parse_args()
    if given.job:
        job()
    else:
        measure(given.seconds)


if __name__ == "__main__":
    main()
