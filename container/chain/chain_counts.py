"""ChainCounts: the rows into and out of each operator of a chain, and their metrics.

Owner: the task thread for `records_in`; any thread reads the rest, which may lag by a chunk. Nothing is
counted twice: most counts come from loops and exchanges, and the others follow from an operator's neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

from yarrow.container.chain.chain_compiler import ChainCompiler
from yarrow.container.chain.chain_time import ChainTime
from yarrow.container.metrics.metric_registry import MetricRegistry, metric_scope
from yarrow.container.network.partition import Partition
from yarrow.container.operators.base import Operator


class ChainCounts:
    """The row counts of one subtask's operators."""

    def __init__(
        self, operators: Sequence[Operator], compiler: ChainCompiler, partitions: Sequence[Partition]
    ) -> None:
        self._operators = operators
        self._compiler = compiler
        self._partitions = partitions
        #: Rows delivered to the head.
        self.records_in = 0

    def records_into(self, index: int) -> int:
        """Rows that have reached an operator."""
        if index == 0:
            return self.records_in or self._operators[0].records_in
        operator = self._operators[index]
        if self._compiler.counts_as_parent(index):
            return self.records_into(0)
        if index in self._compiler.counts:
            return self._compiler.counts[index][0]
        if operator.one_to_one:
            return self.records_out_of(index)
        return operator.records_in

    def records_out_of(self, index: int) -> int:
        """Rows that an operator has emitted to its main output and to consumed side outputs."""
        total = 0
        for side_output in (None, *self._compiler.side_outputs(index)):
            total += self._records_behind(index, side_output)
        return total

    def _records_behind(self, index: int, side_output: str | None) -> int:
        for partition in self._partitions:
            if partition.edge.source_operator == index and partition.edge.side_output == side_output:
                return partition.records_taken
        children = self._compiler.children(index, side_output)
        return self.records_into(children[0]) if children else 0

    @property
    def records_out(self) -> int:
        """Rows on all outgoing edges."""
        return sum(partition.records_taken for partition in self._partitions)

    def register(self, registry: MetricRegistry, time: ChainTime) -> None:
        """Registers the metrics of all operators, and the watermarks of `time`."""
        for index, operator in enumerate(self._operators):
            scope = metric_scope(operator.name)
            registry.counted(f"{scope}.numRecordsIn", lambda i=index: self.records_into(i))  # type: ignore[misc]
            registry.counted(f"{scope}.numRecordsOut", lambda i=index: self.records_out_of(i))  # type: ignore[misc]
            behind = time.behind[index]
            registry.register(f"{scope}.currentInputWatermark", lambda t=behind: t.input_watermark)  # type: ignore[misc]
            registry.register(f"{scope}.currentOutputWatermark", lambda t=behind: t.watermark)  # type: ignore[misc]
