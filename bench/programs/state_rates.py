"""Rate of a keyed row job of rows.py in a window of seconds, once its state is there: with or without checkpoints.

The size is the length of the window. It begins when so many records are read (`--records-before`) and so much time has
passed (`--seconds-before`), so that with a window of one interval, each run has the work of one checkpoint in it. What
was read is counted where it is read, once a batch. Started as `python -m bench.programs.state_rates` from the root of
the checkout.
"""

from __future__ import annotations

import argparse
import json
import mmap
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.programs.checkpoint_reports import CheckpointReports, cancel, wait_until
from bench.programs.rows import JOBS, DroppingSink
from yarrow.common import Configuration, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.base import SourceReaderContext, SourceRecords
from yarrow.datastream.connectors.number_seq import NumberSequenceReader, NumberSequenceSource

#: Bytes of a count in its file.
WIDTH = 8
#: Numbers of each reader; never reached.
PLENTY = 1 << 60


class CountedNumbers(NumberSequenceSource):
    """Numbers without end; each reader notes in a file of its own how many it has read."""

    def __init__(self, folder: str) -> None:
        super().__init__(0, PLENTY)
        self.folder = folder

    def create_reader(self, context: SourceReaderContext) -> NumberSequenceReader:
        return _CountingReader(context, Path(self.folder, f"read-{context.subtask_index}"))


class _CountingReader(NumberSequenceReader):
    def __init__(self, context: SourceReaderContext, path: Path) -> None:
        super().__init__(context)
        path.write_bytes(bytes(WIDTH))
        with path.open("r+b") as file:
            self._noted = mmap.mmap(file.fileno(), WIDTH)
        self._read = 0

    def read_split(self, max_rows: int) -> SourceRecords | None:
        records = super().read_split(max_rows)
        if records is not None:
            self._read += len(records.rows)
            self._noted[:] = self._read.to_bytes(WIDTH, "little")
        return records


def records_read(folder: str) -> int:
    """By all readers together; 0 before all have begun."""
    found = [path.read_bytes() for path in Path(folder).glob("read-*")]
    return sum(int.from_bytes(data, "little") for data in found) if len(found) == 2 else 0


def cpu_seconds() -> float:
    """Of this process and all below it."""
    this = psutil.Process()
    times = [process.cpu_times() for process in [this, *this.children(recursive=True)]]
    return float(sum(one.user + one.system for one in times))


def measure(given: argparse.Namespace) -> None:
    """The job in this process's embedded cluster."""
    with tempfile.TemporaryDirectory(prefix="bench-rates-") as folder:
        options = {
            "parallelism.default": "2",
            "state.backend.type": given.backend,
            # As much as each process of the bare RocksDB loop has.
            "state.backend.rocksdb.memory.fixed-per-slot": "256 mb",
            "web.checkpoints.history": "1000",
        }
        if given.checkpoint:
            options["execution.checkpointing.interval"] = f"{int(given.checkpoint * 1000)} ms"
            options["execution.checkpointing.dir"] = folder
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
        numbers = env.from_source(CountedNumbers(folder), WatermarkStrategy.no_watermarks(), "integers")
        JOBS[given.job](numbers).sink_to(DroppingSink())
        client: Any = env.execute_async(f"bench {given.job}")
        began = time.perf_counter()
        wait_until(
            lambda: (
                records_read(folder) >= given.records_before
                and time.perf_counter() - began >= given.seconds_before
            ),
            200,
            f"{given.records_before} records",
        )
        started, records, cpu = time.perf_counter(), records_read(folder), cpu_seconds()
        time.sleep(given.seconds)
        records, cpu = records_read(folder) - records, cpu_seconds() - cpu
        rate = records / (time.perf_counter() - started)
        completed = CheckpointReports(client).history() if given.checkpoint else []
        cancel(client)
    failed = ["no checkpoint was complete"] if given.checkpoint and not completed else []
    result = {"value": round(rate), "unit": "records/s", "cpu_us": round(cpu / max(1, records) * 1e6, 3)}
    if completed:
        result["checkpoint_s"] = [entry["end_to_end_duration"] / 1000 for entry in completed]
    print(json.dumps(result | {"failed": failed}))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("seconds", type=int)
    arguments.add_argument("--job", choices=JOBS, default="integers")
    arguments.add_argument("--records-before", type=int, default=1_000_000)
    arguments.add_argument("--seconds-before", type=float, default=1.0)
    arguments.add_argument("--checkpoint", type=float, default=0.0, help="seconds between checkpoints")
    arguments.add_argument("--backend", choices=("hashmap", "rocksdb"), default="hashmap")
    measure(arguments.parse_args())


if __name__ == "__main__":
    main()
