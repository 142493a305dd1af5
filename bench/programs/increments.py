"""Incremental RocksDB checkpoints of 1 GB of state of which 1 % changes between two of them, parallelism 2.

The size is the number of checkpoints after the first full one. The value printed is the 99th percentile of the pause of
the keyed tasks at the cut in ms; beside it the median and mean upload as shares of the first, which are named as failed
above 10 % and 30 %. Started as `python -m bench.programs.increments` from the root of the checkout.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.programs.checkpoint_reports import CheckpointReports, cancel, wait_until
from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.datastream.connectors.base import NothingAvailable, SourceReaderContext, SourceRecords
from yarrow.datastream.connectors.datagen import DataGeneratorReader, DataGeneratorSource
from yarrow.datastream.connectors.number_seq import NumberRange
from yarrow.datastream.state import ValueState, ValueStateDescriptor

VALUE_BYTES = 1000
CHANGED = 0.01


class Storing(KeyedProcessFunction[int, Any, Any]):
    """Keeps the newest random bytes of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._value: ValueState[Any] = runtime_context.get_state(
            ValueStateDescriptor("value", Types.PRIMITIVE_ARRAY(Types.BYTE()))
        )

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self._value.update(value[1])


class RoundsSource(DataGeneratorSource[Any]):
    """All keys once, then rounds of a part of them: a round begins when its file exists."""

    def __init__(self, keys: int, folder: str) -> None:
        super().__init__(lambda index: index, 1 << 40)
        self.keys = keys
        self.folder = folder

    def create_reader(self, context: SourceReaderContext) -> DataGeneratorReader[Any]:
        return _RoundsReader(self, context)


class _RoundsReader(DataGeneratorReader[Any]):
    def __init__(self, source: RoundsSource, context: SourceReaderContext) -> None:
        from yarrow.runtime.common.clock import SystemClock

        self._source = source
        super().__init__(context, lambda index: index, None, SystemClock())
        self._subtask, self._readers = context.subtask_index, context.parallelism
        self._random = random.Random(context.subtask_index)
        self._left = [key for key in range(source.keys) if key % self._readers == self._subtask]
        self._round = 0

    def read_split(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        if not self._left:
            self._mark("done")
            if not Path(self._source.folder, f"round-{self._round + 1}").exists():
                return NothingAvailable(0.01)
            self._round += 1
            share = int(self._source.keys * CHANGED / self._readers)
            self._left = [
                self._random.randrange(self._source.keys // self._readers) * self._readers + self._subtask
                for _ in range(share)
            ]
        rows = [(key, self._random.randbytes(VALUE_BYTES)) for key in self._left[: min(max_rows, 500)]]
        del self._left[: len(rows)]
        return SourceRecords(rows)

    def _mark(self, what: str) -> None:
        Path(self._source.folder, f"{what}-{self._round}-{self._subtask}").touch()

    def current_split(self) -> NumberRange:
        return NumberRange(self._id, self._rest.start, self._rest.stop)


def measure(checkpoints: int) -> None:
    """The job in this process's embedded cluster."""
    keys = 1_000_000 if checkpoints >= 10 else 50_000
    with tempfile.TemporaryDirectory(prefix="bench-increments-") as folder:
        options = {
            "parallelism.default": "2",
            "state.backend.type": "rocksdb",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.interval": "1 h",
            "execution.checkpointing.dir": folder,
            "web.checkpoints.history": "1000",
        }
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
        rows = env.from_source(RoundsSource(keys, folder), WatermarkStrategy.no_watermarks(), "rounds")
        rows.key_by(lambda row: row[0], Types.LONG()).process(Storing()).name("storing").print()
        client: Any = env.execute_async("bench increments")
        reports = CheckpointReports(client)
        for number in range(checkpoints + 1):
            Path(folder, f"round-{number}").touch()
            wait_until(
                lambda number=number: all(Path(folder, f"done-{number}-{i}").exists() for i in range(2)),  # type: ignore[misc]
                200,
                f"round {number}",
            )
            time.sleep(0.3)
            reports.trigger()
            wait_until(lambda number=number: reports.completed > number, 120, f"checkpoint {number + 1}")  # type: ignore[misc]
        history = reports.history()
        vertex = next(id for name, id in reports.vertices().items() if "storing" in name)
        pauses = [pause for entry in history[1:] for pause in reports.sync_pauses(entry["id"], vertex)]
        cancel(client)
    uploads = [entry["checkpointed_size"] for entry in history]
    median, mean = statistics.median(uploads[1:]) / uploads[0], statistics.mean(uploads[1:]) / uploads[0]
    failed = [f"median upload {median:.1%}"] if median > 0.1 else []
    failed += [f"mean upload {mean:.1%}"] if mean > 0.3 else []
    pause = sorted(pauses)[min(len(pauses) - 1, int(0.99 * len(pauses)))]
    result = {
        "value": pause,
        "unit": "ms",
        "first_mb": round(uploads[0] / 1e6),
        "median_upload": round(median, 3),
    }
    print(json.dumps(result | {"mean_upload": round(mean, 3), "failed": failed}))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("checkpoints", type=int)
    measure(arguments.parse_args().checkpoints)


if __name__ == "__main__":
    main()
