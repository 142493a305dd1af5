"""Distribution of a stream: which subtask of the next operator gets a record, or which of several streams.

Owner: the thread that builds the program. Partitioners return a stream that differs from this one in the way to what is
put behind it, and in nothing else. `key_by` and `broadcast`, which make other streams, are with DataStream itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic

from yarrow.datastream.functions import KeySelector, Partitioner
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.program.graph_builder import GraphBuilder
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.datastream.program_stream import ProgramStream, S
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec, ProcessOperator

if TYPE_CHECKING:
    from yarrow.datastream.functions.output_selector import OutputSelector

    #: Types of selectors of `split`: a function of the record, or an object with select.
    NamesFunction = Callable[[Any], Iterable[str] | str] | OutputSelector[Any]

#: Types of key selectors: a function of the record, or an object with get_key.
KeyFunction = Callable[[Any], Any] | KeySelector[Any, Any]


class SplitStream(Generic[S]):
    """A stream whose records have been given names; `select` gives those of some names.

    Made by `DataStream.split`. A record of no selected name goes nowhere.
    """

    def __init__(self, named: ProgramStream[S], builder: GraphBuilder, selector: NamesFunction) -> None:
        """`named`: what `split` has put behind the stream; its function is replaced with each selection."""
        self._named = named
        self._builder = builder
        self._selector = selector
        self._selections: dict[frozenset[str], OutputTag] = {}

    def select(self, *output_names: str) -> S:
        """Return the stream of the records that have one of these names, each record once."""
        if not output_names or not all(isinstance(name, str) for name in output_names):
            raise InvalidProgramError(f"select takes names of streams, not {output_names!r}")
        names = frozenset(output_names)
        if names not in self._selections:
            tag = OutputTag(f"select {sorted(names)}", self._named.get_type())
            self._selections[names] = tag
            from yarrow.datastream.functions.output_selector import SplitFunction

            function = SplitFunction(self._selector, self._selections.items())
            operator = self._named.operator("select")
            operator.spec = ProcessOperator(function=self._builder.pickle(function, operator.name))
        return self._named.get_side_output(self._selections[names])


class StreamDistribution(ProgramStream[S]):
    """The methods that choose a partitioner, or the stream that a record belongs to."""

    def split(self, output_selector: NamesFunction) -> SplitStream[S]:
        """Give each record the names that a selector returns; `select` of the result gives the streams.

        A thin form over side outputs, as Flink had until 1.11.
        """
        from yarrow.datastream.functions.output_selector import OutputSelector, SplitFunction

        require_function(output_selector, OutputSelector, "split")
        function = SplitFunction(output_selector, ())
        spec = ProcessOperator(function=self._builder.pickle(function, "Split"))
        named = self._one_input(
            "Split", spec, self.transformation.output_type, declares_blocking(output_selector)
        )
        return SplitStream(named, self._builder, output_selector)

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner[Any],
        key_selector: KeyFunction,
    ) -> S:
        """Return the stream whose records go to the subtask that `partitioner(key, number)` names."""
        require_function(partitioner, Partitioner, "partition_custom")
        require_function(key_selector, KeySelector, "partition_custom")
        spec = PartitionerSpec(
            kind=PartitionerKind.CUSTOM,
            key_selector=self._builder.pickle(key_selector, "partition_custom", "key selector"),
            function=self._builder.pickle(partitioner, "partition_custom", "partitioner"),
        )
        return self._partition(spec, self._builder.as_rows(self.transformation))

    def forward(self) -> S:
        """Return the stream whose records stay in their subtask; needs equal parallelism behind it."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.FORWARD))

    def shuffle(self) -> S:
        """Return the stream whose records go to subtasks chosen at random."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.SHUFFLE))

    def rebalance(self) -> S:
        """Return the stream whose records go to all subtasks in turn."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.REBALANCE))

    def rescale(self) -> S:
        """Return the stream whose records go in turn to some of the subtasks, near their producer."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.RESCALE))

    def global_(self) -> S:
        """Return the stream whose records all go to the first subtask."""
        return self._partition(PartitionerSpec(kind=PartitionerKind.GLOBAL))
