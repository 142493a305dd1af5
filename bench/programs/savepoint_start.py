"""Time from a job's submission until its first record is processed, from a savepoint or empty.

The job has a value by key on RocksDB, at two subtasks. `--savepoint` names what `savepoint_frames --keep` has left.
Started from the root of the checkout as `python -m bench.programs.savepoint_start`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.programs.checkpoint_reports import wait_until
from bench.programs.savepoint_frames import STATE, UID
from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy

_RECORDS_PER_SECOND = 200


class FirstRecord(KeyedProcessFunction[int, int, int]):
    """Adds to the value of a key; each subtask writes into a file when it had its first record, and what it found."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: Path | None = None
        self._value: Any = None

    def open(self, runtime_context: RuntimeContext) -> None:
        """Gets the state."""
        self._value = runtime_context.get_state(STATE)
        self._file = Path(self._folder, str(runtime_context.get_index_of_this_subtask()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        """Puts out nothing."""
        found = self._value.value()
        self._value.update((found or 0) + 1)
        if self._file is not None:
            made = self._file.with_suffix(".made")
            made.write_text(json.dumps([time.time(), found]))
            made.rename(self._file)
            self._file = None
        return iter(())


def seconds(savepoint: str) -> tuple[float, float, list[Any]]:
    """Until the first and the last subtask had a record, and the values that they found."""
    with TemporaryDirectory(prefix="bench-start-") as folder:
        options = {"parallelism.default": "2", "state.backend.type": "rocksdb"}
        if savepoint:
            options["execution.state-recovery.path"] = savepoint
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
        env.set_max_parallelism(128)
        limit = RateLimiterStrategy.per_second(_RECORDS_PER_SECOND)
        source = DataGeneratorSource(lambda index: index % 1000, 1 << 40, limit, Types.LONG())
        rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        rows.key_by(lambda number: number, Types.LONG()).process(FirstRecord(folder)).uid(UID).print()
        began = time.time()
        client: Any = env.execute_async("bench start")
        wait_until(lambda: all(Path(folder, each).exists() for each in "01"), 300, "a record of each subtask")
        told = [json.loads(Path(folder, each).read_text()) for each in "01"]
        client.cancel().result()
        times = [at - began for at, _ in told]
        return min(times), max(times), [value for _, value in told]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--savepoint", default="")
    arguments.add_argument("--runs", type=int, default=1)
    given = arguments.parse_args()
    for _ in range(given.runs):
        first, last, values = seconds(given.savepoint)
        print(json.dumps({"first_s": round(first, 2), "all_s": round(last, 2), "found": values}), flush=True)


if __name__ == "__main__":
    main()
