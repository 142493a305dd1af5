"""The columnar keyed sum on Yarrow: x -> key x % keys, value 1 -> by key -> sum -> a sink that drops it.

Parallelism 2 in two worker processes; half of all rows cross. The source makes batches of `--batch` rows, as one
that reads row groups of a file has them at hand. `--check` collects instead and prints the sum of the last totals.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from yarrow.common import Configuration, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors import (
    Boundedness,
    OneByOneReader,
    OnRequestEnumerator,
    Sink,
    SinkWriter,
    SinkWriterContext,
    Source,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumeratorContext,
)

NUMBERS = pa.schema([("x", pa.int64())])
KEYED = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@dataclass(frozen=True)
class Numbers(SourceSplit):
    """The integers from `next` up to but not including `stop`."""

    id: str
    next: int
    stop: int

    @property
    def split_id(self) -> str:
        return self.id


class NumberColumns(Source[pa.RecordBatch, Numbers]):
    """The integers from 0 to `rows` - 1 as a column, in one split a reader."""

    def __init__(self, rows: int, batch: int) -> None:
        self.rows = rows
        self.batch = batch

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[Numbers], checkpoint: object = None
    ) -> OnRequestEnumerator[Numbers]:
        of = context.parallelism
        parts = [Numbers(str(i), i * self.rows // of, (i + 1) * self.rows // of) for i in range(of)]
        return OnRequestEnumerator(context, parts)

    def create_reader(self, context: SourceReaderContext) -> NumberColumnsReader:
        return NumberColumnsReader(context, self.batch)

    def produced_schema(self) -> pa.Schema:
        return NUMBERS


class NumberColumnsReader(OneByOneReader[pa.RecordBatch, Numbers]):
    """Makes whole batches: of columns no more than the size of the next one is worth saving."""

    def __init__(self, context: SourceReaderContext, batch: int) -> None:
        super().__init__(context)
        self._batch = batch

    def open_split(self, split: Numbers) -> None:
        self._split_id, self._next, self._stop = split.id, split.next, split.stop

    def read_split(self, max_rows: int) -> SourceRecords | None:
        start, end = self._next, min(self._next + self._batch, self._stop)
        if start == end:
            return None
        self._next = end
        return SourceRecords(
            pa.record_batch([np.arange(start, end)], schema=NUMBERS), split_id=self._split_id
        )

    def current_split(self) -> Numbers:
        return Numbers(self._split_id, self._next, self._stop)


class Keyed:
    """The map: key and value of each number."""

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        key = batch["x"].to_numpy() % self.keys
        return pa.record_batch([key, np.ones_like(key)], schema=KEYED)


class Dropping(SinkWriter[object]):
    """Takes rows and batches and forgets them."""

    def write(self, rows: Sequence[object], timestamps: Sequence[int | None] | None) -> None:
        pass

    def write_batch(self, batch: pa.RecordBatch) -> None:
        pass


class DroppingSink(Sink[object]):
    """For jobs of which only the rate counts."""

    accepts_columns = True

    def create_writer(self, context: SinkWriterContext, restored: Sequence[object] = ()) -> Dropping:
        return Dropping()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("rows", type=int)
    arguments.add_argument("--keys", type=int, default=1000)
    arguments.add_argument("--batch", type=int, default=65_536)
    arguments.add_argument("--check", action="store_true", help="take the results and add up the last totals")
    given = arguments.parse_args()

    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"parallelism.default": "2"})
    )
    source = NumberColumns(given.rows, given.batch)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    sums = numbers.map_batches(Keyed(given.keys), KEYED).key_by("k").sum("v", "total")
    if not given.check:
        sums.sink_to(DroppingSink())
        env.execute("bench columnar keyed sum")
        return
    with sums.to_rows(as_tuple=True).execute_and_collect() as collected:
        totals: dict[int, int] = {}
        for key, total in collected:
            totals[key] = max(total, totals.get(key, 0))
    print(json.dumps({"rows": given.rows, "total": sum(totals.values())}))


if __name__ == "__main__":
    main()
