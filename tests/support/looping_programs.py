"""Programs with iterations, written with the parts of which a DataSet program is made."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from tests.support.batch_runner import BatchRun, collecting_graph, run_batch
from tests.unit.runtime.graph.programs import environment
from yarrow.batch.dataset.iteration_graph import OpenIteration
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.runtime.graph.batch.batch_rules import check
from yarrow.runtime.graph.data_set_spec import JoinKind, JoinOperator
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec
from yarrow.runtime.graph.transformations import Transformation


class Program:
    """A program with iterations."""

    def __init__(self, parallelism: int = 2, mode: str = "BATCH") -> None:
        self.env: StreamExecutionEnvironment = environment(parallelism, {"execution.runtime-mode": mode})
        self.builder = self.env.graph_builder

    def rows(self, rows: list[Any], type_info: TypeInformation | None = None) -> DataStream:
        return self.env.from_collection(rows, type_info).rebalance().map(lambda row: row, type_info)

    def stream(self, transformation: Transformation) -> DataStream:
        return DataStream(self.env, transformation)

    def begin(self, *streams: DataStream, most: int, name: str = "loop") -> OpenIteration:
        return OpenIteration(self.builder, name, [stream.transformation for stream in streams], most)

    def by(self, read: Transformation, field: int) -> Transformation:
        selector = self.builder.pickle(itemgetter(field), "key")
        return self.builder.partition(
            read, PartitionerSpec(kind=PartitionerKind.KEY_GROUP, key_selector=selector)
        )

    def join(
        self, first: Transformation, one: int, second: Transformation, other: int, function: Any, **spec: Any
    ) -> DataStream:
        operator = JoinOperator(
            kind=JoinKind.INNER,
            key_selectors=(
                self.builder.pickle(itemgetter(one), "key"), self.builder.pickle(itemgetter(other), "key"),
            ),
            function=self.builder.pickle(function, "Join"),
            **spec,
        )  # fmt: skip
        reads = self.by(first, one), self.by(second, other)
        return self.stream(self.builder.two_input(*reads, "Join", operator))

    def run(self, *results: Any, **options: Any) -> BatchRun:
        graph = collecting_graph(self.env, *results)
        check(graph)
        return run_batch(graph, **options)
