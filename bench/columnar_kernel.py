"""Rates of the columnar kernels alone, on one core: key index, aggregation, partition, wire encoding.

Prints one JSON line a case: the best of several runs over the same batches, in rows a second. No part of the test
suite, and no figure of a whole job.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from yarrow.container.network.columnar_partition import ColumnarResultPartition
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.output_channel import OutputChannel
from yarrow.container.operators.columnar.columnar_aggregation import VectorizedAggregation
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.data.elements import ArrowBatch, Batch, ControlElement
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.graph.column_spec import ArrowAggregateOperator
from yarrow.runtime.graph.job_graph import JobEdge, ResultPartitionType
from yarrow.runtime.graph.operator_spec import (
    AggregateKind,
    ColumnAggregate,
    PartitionerKind,
    PartitionerSpec,
    StreamKind,
)


class DroppingChannel(OutputChannel):
    """Takes every batch and forgets it."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.grant(1 << 60, 1 << 60)

    def _transmit(self, batch: Batch) -> None:
        self.sent_batches += 1

    def _transmit_control(self, element: ControlElement) -> None: ...

    def close(self, reason: str) -> None: ...


def partition_of(channels: int) -> ColumnarResultPartition:
    """A partition by column `key` over channels that drop what they get."""
    edge = JobEdge(
        index=0,
        source=JobVertexID("0" * 32),
        source_operator=0,
        target=JobVertexID("1" * 32),
        target_input=0,
        partitioner=PartitionerSpec(kind=PartitionerKind.KEY_GROUP, key_column="key"),
        result_type=ResultPartitionType.PIPELINED,
        stream_kind=StreamKind.COLUMNAR,
    )
    return ColumnarResultPartition(edge, [DroppingChannel() for _ in range(channels)], 128)


def rate(name: str, keys: int, batches: list[ArrowBatch], call: Callable[[ArrowBatch], object]) -> None:
    """Runs `call` over the batches: once cold, then the best of five."""
    rows = sum(map(len, batches))
    times = []
    for _ in range(6):
        start = time.perf_counter()
        for batch in batches:
            call(batch)
        times.append(time.perf_counter() - start)
    print(
        json.dumps(
            {
                "case": name,
                "keys": keys,
                "cold_rows_per_s": round(rows / times[0]),
                "rows_per_s": round(rows / min(times[1:])),
            }
        ),
        flush=True,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--batches", type=int, default=64)
    arguments.add_argument("--rows", type=int, default=65_536)
    given = arguments.parse_args()
    pa.set_cpu_count(1)
    generator = np.random.default_rng(7)
    for keys in (1000, 1_000_000):
        batches = [
            ArrowBatch(
                pa.record_batch(
                    {
                        "key": generator.integers(0, keys, given.rows),
                        "value": generator.integers(0, 1000, given.rows),
                    }
                )
            )
            for _ in range(given.batches)
        ]
        spec = ArrowAggregateOperator(
            key_column="key", aggregates=(ColumnAggregate(AggregateKind.SUM, "value", "sum"),)
        )
        rate("keyed sum", keys, batches, VectorizedAggregation("sum", spec).process_batch)
        for channels in (2, 4, 100):
            rate(f"partition to {channels}", keys, batches, partition_of(channels).emit_batch)
        codec = ElementCodec(serializer_for(None))
        rate("encode", keys, batches, codec.encode_batch)

        def round_trip(batch: ArrowBatch, codec: ElementCodec = codec) -> None:
            frame_type, parts, flags = codec.encode_batch(batch)
            codec.decode(frame_type, b"".join(parts), len(batch), flags)

        rate("encode and decode", keys, batches, round_trip)


if __name__ == "__main__":
    main()
