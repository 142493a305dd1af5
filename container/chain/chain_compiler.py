"""ChainCompiler: compiles the row part of a chain to one generated function that loops once over a chunk.

Owner: the task thread, before the first record. Built from operator shapes alone; user functions are bound
objects that the loop calls once a record, or formulas that it computes. Behind an operator come exchange buffers
first (they hold fixed values), then chained operators. Each of these but the last gets a copy of mutable values.
The last one gets a copy too if state may hold the value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import cast

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.chain.routing import generate_partition
from yarrow.container.codegen.code_writer import CodeWriter, CompiledCode
from yarrow.container.codegen.freezing import generate_fixed, needs_fixing
from yarrow.container.codegen.inlining.functions import is_traced
from yarrow.container.codegen.naming import generate_named
from yarrow.container.network.result_partition import ResultPartition
from yarrow.container.operators.base import Emit, Operator, RowOperator, declared_type
from yarrow.datastream.connectors.dead_letters import DEAD_LETTERS
from yarrow.datastream.output_tag import OutputTag
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.graph.job_graph import JobVertex

#: Nested blocks before a subroutine begins; an operator may open a few of its own.
_MAX_DEPTH = 12


class ChainCompiler:
    """Compiles functions over the operators and row partitions of one vertex."""

    def __init__(
        self,
        vertex: JobVertex,
        operators: Sequence[Operator],
        partitions: Sequence[ResultPartition],
        consumer_of: Callable[[ResultPartition], JobVertex],
        object_reuse: bool,
        *,
        inlines: bool = False,
    ) -> None:
        """`inlines`: small functions of the user's are written into the loops."""
        self._vertex = vertex
        self._operators = operators
        self._partitions = partitions
        self._consumer_of = consumer_of
        self._object_reuse = object_reuse
        #: Whether small functions are written into the loops that are compiled from now on.
        self.inlines = inlines
        self._types = [declared_type(descriptor.output_type) for descriptor in vertex.operators]
        #: Rows that reached an operator, if the loop has to count them.
        self.counts: dict[int, list[int]] = {}

    def compile_input(self, index: int, *, with_timestamps: bool) -> CompiledCode:
        """Function (rows[, timestamps]) that feeds input `index` of the head operator."""

        def start(code: CodeWriter, value: str, timestamp: str | None) -> None:
            head = self._row_operator(0)

            def call(emit: Emit) -> None:
                head.generate_input(code, index, value, timestamp, emit)

            with code.owned_by(0, value):
                self._generate_call(code, (0, index), value, timestamp, call)

        return self._compile(f"input_{index}", start, with_timestamps)

    def compile_behind(
        self, operator: int, side_output: str | None, *, with_timestamps: bool
    ) -> CompiledCode:
        """Function (rows[, timestamps]) that feeds the consumers of `operator`: for sources, timers and conversions."""

        untagged = self._operators[operator].emits_lists

        def start(code: CodeWriter, value: str, timestamp: str | None) -> None:
            with code.owned_by(operator, value):
                if untagged:
                    self._emit_to(code, operator, side_output, value, timestamp)
                else:
                    self._emit_from(code, operator, side_output)(value, timestamp)

        return self._compile(f"behind_{operator}", start, with_timestamps)

    def _compile(
        self, name: str, start: Callable[[CodeWriter, str, str | None], None], with_timestamps: bool
    ) -> CompiledCode:
        # Breakpoints and coverage need calls.
        code = CodeWriter(inlines=self.inlines and not is_traced())
        value = code.fresh("v")
        if with_timestamps:
            timestamp = code.fresh("t")
            with code.block(f"for {value}, {timestamp} in zip(rows, timestamps):"):
                start(code, value, timestamp)
            code.extend_instead(("rows", value), ("timestamps", timestamp))
            return code.compile(name, "rows, timestamps")
        with code.block(f"for {value} in rows:"):
            start(code, value, None)
        code.extend_instead(("rows", value))
        return code.compile(name, "rows")

    # ------------------------------------------------------------------ edges of the tree

    def children(self, operator: int, side_output: str | None) -> list[int]:
        """Chained operators behind an operator."""
        return [
            e.target
            for e in self._vertex.chained_edges
            if e.source == operator and e.side_output == side_output
        ]

    def partitions_of(self, operator: int, side_output: str | None) -> list[ResultPartition]:
        """Exchange edges behind an operator."""
        return [
            p
            for p in self._partitions
            if p.edge.source_operator == operator and p.edge.side_output == side_output
        ]

    def side_outputs(self, operator: int) -> list[str]:
        """Ids of an operator's side outputs that have a consumer."""
        tags = {e.side_output for e in self._vertex.chained_edges if e.source == operator}
        tags |= {p.edge.side_output for p in self._partitions if p.edge.source_operator == operator}
        return sorted(tag for tag in tags if tag is not None)

    def _row_operator(self, index: int) -> RowOperator:
        operator = self._operators[index]
        if not operator.takes_rows:
            raise TypeError(f"operator '{operator.name}' takes no rows, but the job leads rows to it")
        return cast(RowOperator, operator)

    def _emit_from(self, code: CodeWriter, operator: int, side_output: str | None) -> Emit:
        if side_output is None and self._operators[operator].emits_tagged:
            return functools.partial(self._emit_tagged, code, operator)
        return functools.partial(self._emit_to, code, operator, side_output)

    def _emit_tagged(self, code: CodeWriter, operator: int, value: str, timestamp: str | None) -> None:
        made = code.made_tuples.get(value)
        if made is not None and len(made) != 2:
            self._emit_to(code, operator, None, value, timestamp)
            return
        condition = f"{value}[0].__class__ is {code.bind_as('OutputTag', OutputTag)}"
        if made is None:
            condition = f"{value}.__class__ is tuple and len({value}) == 2 and {condition}"
        with code.block(f"if {condition}:"):
            for side_output in self.side_outputs(operator):
                expected = code.bind("tag", side_output)
                with code.block(f"if {value}[0].tag_id == {expected}:"):
                    side = code.fresh("v")
                    code.line(f"{side} = {value}[1]")
                    self._emit_to(code, operator, side_output, side, timestamp)
        with code.block("else:"):
            self._emit_to(code, operator, None, value, timestamp)

    def _emit_to(
        self, code: CodeWriter, operator: int, side_output: str | None, value: str, timestamp: str | None
    ) -> None:
        declared = self._types[operator] if side_output is None else None
        if not self._operators[operator].passes_rows:
            row_type = declared if side_output is None else self._side_type(operator, side_output)
            with code.owned_by(operator, value):
                has_names = side_output is None and self._operators[operator].emits_named_rows
                value = generate_named(code, value, row_type, has_names=has_names)
        partitions = self.partitions_of(operator, side_output)
        children = self.children(operator, side_output)
        is_new = self._operators[operator].emits_new_rows and len(partitions) + len(children) == 1
        for partition in partitions:
            edge_type = declared_type(partition.edge.type_spec)
            with code.owned_by(operator, value):
                fixed = generate_fixed(
                    code, value, edge_type or declared, self._object_reuse or is_new, gives_away=not children
                )
                consumer = self._consumer_of(partition)
                with code.leading_to(consumer.operators[0].name):
                    generate_partition(
                        code,
                        partition,
                        fixed,
                        timestamp,
                        max_parallelism=consumer.max_parallelism,
                        name=f"the exchange behind operator '{self._operators[operator].name}'",
                    )
        for position, child in enumerate(children):
            passed = value
            is_last = position == len(children) - 1
            if is_last and self._operators[operator].emits_state:
                with code.owned_by(operator, value):
                    passed = generate_fixed(code, value, declared, self._object_reuse)
            elif not is_last and needs_fixing(declared, self._object_reuse):
                passed = code.fresh("v")
                code.line(f"{passed} = {code.bind_as('freeze', freeze_or_copy)}({value})")
            self._operators[child].gets_new_rows = is_new
            self._call(code, child, passed, timestamp)

    def _side_type(self, operator: int, side_output: str) -> TypeInformation | None:
        """The declared type of a side output; every consumed one has a type."""
        specs = [
            *[
                e.side_type
                for e in self._vertex.chained_edges
                if (e.source, e.side_output) == (operator, side_output)
            ],
            *[p.edge.type_spec for p in self.partitions_of(operator, side_output)],
        ]
        return declared_type(next((spec for spec in specs if spec is not None), None))

    def _count_is_known(self, child: int) -> bool:
        """Whether another count gives the rows into `child`: see ChainCounts.records_into."""
        operator = self._operators[child]
        return operator.one_to_one or operator.takes_chunks or self.counts_as_parent(child)

    def counts_as_parent(self, child: int) -> bool:
        """Whether each row into the head gives one row into `child`."""
        edge = next(e for e in self._vertex.chained_edges if e.target == child)
        parent = self._operators[edge.source]
        if edge.side_output is not None:
            return False
        if edge.source == 0:
            return parent.one_to_one or (self._vertex.is_source and not self.side_outputs(0))
        return parent.one_to_one and self.counts_as_parent(edge.source)

    def _call(self, code: CodeWriter, child: int, value: str, timestamp: str | None) -> None:
        if code.depth < _MAX_DEPTH:
            self._generate(code, child, value, timestamp)
            return
        # Python nests at most 20 loops: the rest of a deep chain becomes a function of its own.
        with code.owned_by(child, value):
            with code.subroutine(value if timestamp is None else f"{value}, {timestamp}") as name:
                self._generate(code, child, value, timestamp)
            code.line(f"{name}({value})" if timestamp is None else f"{name}({value}, {timestamp})")

    def _generate(self, code: CodeWriter, child: int, value: str, timestamp: str | None) -> None:
        operator = self._row_operator(child)
        with code.owned_by(child, value):
            if not self._count_is_known(child):
                count = self.counts.setdefault(child, [0])
                code.count_into(count)

            def call(emit: Emit) -> None:
                operator.generate(code, value, timestamp, emit)

            self._generate_call(code, (child, 0), value, timestamp, call)

    def _generate_call(
        self,
        code: CodeWriter,
        place: tuple[int, int],
        value: str,
        timestamp: str | None,
        call: Callable[[Emit], None],
    ) -> None:
        """Writes an operator's part for one row; `place` is the operator and its input."""
        index, input_index = place
        operator, emit = self._operators[index], self._emit_from(code, index, None)
        failed = operator.failed
        if failed is None or input_index not in failed.inputs:
            call(emit)
            return
        # Most processes have no such operator.
        from yarrow.container.chain.guarded_calls import GuardedCall

        letters_read = failed.wants_letters and DEAD_LETTERS in self.side_outputs(index)
        GuardedCall(
            failed,
            input_index,
            operator.passes_rows,
            None if operator.emits_tagged else self._types[index],
            self._object_reuse,
        ).generate(
            code,
            value,
            timestamp,
            call,
            emit,
            functools.partial(self._emit_to, code, index, DEAD_LETTERS) if letters_read else None,
        )
