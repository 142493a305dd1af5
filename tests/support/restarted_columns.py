"""A keyed operator of record batches at one parallelism after another: RestartedJob with columns.

Each row of a batch goes to the subtask of its key, and the results come as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tests.support.restarted_job import MAX_PARALLELISM, RestartedJob
from yarrow.container.fragment import FragmentSubtask
from yarrow.container.operators.base import Operator
from yarrow.datastream import DataStream
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.elements import ArrowBatch


class RestartedColumns(RestartedJob):
    """Runs what `build` puts behind a stream of record batches of a schema; that must begin with one keyed operator."""

    def __init__(
        self,
        build: Callable[..., DataStream],
        schema: pa.Schema,
        keys: str | tuple[str, ...],
        configuration: Mapping[str, str] | None = None,
        *,
        others: tuple[pa.Schema, ...] = (),
    ) -> None:
        """`others`: the schemas of further inputs, which have key columns of the same names."""
        self._schemas = (schema, *others)
        super().__init__(
            lambda *streams: build(
                *(rows.to_arrow(of) for rows, of in zip(streams, self._schemas, strict=True))
            ).to_rows(),
            configuration,
            inputs=len(self._schemas),
        )
        self._key = BatchKey(keys)

    def start(self, parallelism: int, backend: str) -> None:
        super().start(parallelism, backend)
        # The conversion to columns before the operator has as many subtasks.
        self._feeders_of = [
            [FragmentSubtask(feeder.vertex_id, number) for number in range(parallelism)]
            for feeder in self._feeders
        ]
        self._feeders = [feeder for feeders in self._feeders_of for feeder in feeders]

    @property
    def operators(self) -> list[Operator]:
        """The keyed operator of each subtask."""
        return [task.chain.operators[0] for fragment in self.fragments for task in fragment.tasks]

    def push_rows(
        self, rows: Sequence[Sequence[Any]], timestamps: Sequence[int | None] | None = None, input: int = 0
    ) -> None:
        """Sends rows as one batch to each subtask that has keys among them."""
        schema = self._schemas[input]
        columns = [
            pa.array(list(column), field.type)
            for column, field in zip(zip(*rows, strict=True), schema, strict=True)
        ]
        self.push_batch(
            pa.record_batch(columns, schema=schema),
            None if timestamps is None else pa.array(timestamps, pa.int64()),
            input,
        )

    def push_batch(self, batch: pa.RecordBatch, stamps: pa.Array | None = None, input: int = 0) -> None:
        """Sends the rows of a batch with their timestamps."""
        groups = self._key.hashes(batch) % np.uint64(MAX_PARALLELISM)
        for number, operator in enumerate(self.operators):
            state: Any = operator.context.state
            held = state.context.key_groups
            own = pa.array((groups >= held.start) & (groups <= held.end))
            if own.true_count:
                part = ArrowBatch(batch.filter(own), None if stamps is None else stamps.filter(own))
                self.send(number, part, self._feeders_of[input][0])
