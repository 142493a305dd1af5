"""Groups: the rows of a data set by key, and what can be done with each group, or with all rows as one.

Owner: the thread that builds the program. Where an operation allows it, rows of a group are combined before they are
sent: so few rows are shuffled where keys repeat. Must not know the class of data sets that a program sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any, Generic, Self, TypeVar

from yarrow.batch.dataset.fields import Field, Key, key_of, one_group, place_of, selector_of
from yarrow.batch.dataset.order import Order
from yarrow.batch.dataset.partitions import PartitionOperations, by_key, sort_field
from yarrow.batch.dataset.reducers import ExtremeRow, FirstRowsOfGroup, PairwiseReduce, check_count, first_of
from yarrow.batch.dataset.row_operations import FunctionOperation, RowOperations, function_of
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.functions import KeySelector, Partitioner, ReduceFunction
from yarrow.datastream.functions.data_set_functions import (
    GroupCombineFunction,
    GroupReduceFunction,
    RichFunction,
)
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking, is_rich, require_function
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.data_set_spec import GroupCombineOperator, GroupReduceOperator, SortField
from yarrow.runtime.graph.operator_spec import (
    AggregateKind,
    AggregateOperator,
    ReduceOperator,
)
from yarrow.runtime.graph.transformations import SpecTransformation, Transformation, operator_behind

#: The class of data sets that a program sees.
D = TypeVar("D", bound=RowOperations[Any])
_Iterating = Callable[[Iterator[Any]], Iterable[Any] | None]


class Grouping(Generic[D]):
    """What groups have in common, sorted or not."""

    def __init__(
        self,
        data: RowOperations[D],
        key: Callable[[Any], Any] | KeySelector[Any, Any],
        *,
        is_one: bool = False,
        order: tuple[SortField, ...] = (),
        partitioner: Any = None,
    ) -> None:
        """`is_one`: all rows are one group, which one task takes. `partitioner`: names the task of a key."""
        self._data = data
        self._key = key
        self._is_one = is_one
        self._order = order
        self._partitioner = partitioner
        self._builder = data._builder
        self._pickled_key = self._builder.pickle(key, "group_by", "key selector")

    def get_data_set(self) -> D:
        """Return the data set whose rows are grouped."""
        return self._data._itself()

    def with_partitioner(self, partitioner: Callable[[Any, int], int] | Partitioner[Any]) -> Self:
        """Return the same groups, each taken by the task that `partitioner(key, number of tasks)` names."""
        require_function(partitioner, Partitioner, "with_partitioner")
        made = copy(self)
        made._partitioner = partitioner
        return made

    def reduce_group(
        self,
        reducer: _Iterating | GroupReduceFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> D:
        """Return all results of a function that is called once for each group, with an iterator of its rows.

        If the function is a GroupCombineFunction, too, its `combine` gets rows of a group before they are sent. It may
        be called several times, and gives rows of the same type.
        """
        require_function(reducer, GroupReduceFunction, "reduce_group")
        return self._reduce_group(
            "GroupReduce", reducer, declared(output_type), combines=isinstance(reducer, GroupCombineFunction)
        )

    def combine_group(
        self,
        combiner: _Iterating | GroupCombineFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> D:
        """Return all results of a function that gets rows of one group and one partition, as many as fit into memory.

        Nothing is sent for it. So the function may be called several times for a group, with other rows of it.
        """
        require_function(combiner, GroupCombineFunction, "combine_group")
        made = self._combiner("GroupCombine", combiner, declared(output_type))
        return self._data._made(made, (function_of(made),))

    def first(self, n: int) -> D:
        """Return n rows of each group, the first ones of a sorted group, or all if there are fewer."""
        check_count(n)
        record_type = self._data.transformation.output_type
        return self._reduce_group("First", FirstRowsOfGroup(n), record_type, combines=True)

    # ------------------------------------------------------------------ shared

    def _reduce_group(
        self, name: str, function: Any, output_type: TypeInformation | None, *, combines: bool
    ) -> D:
        read, functions = self._data._rows(), []
        if combines:
            read = self._combiner(f"{name} (combine)", function, read.output_type)
            functions.append(function_of(read))
        spec = GroupReduceOperator(function=self._builder.pickle(function, name), order=self._order)
        made = self._builder.one_input(
            self._by_key(read),
            name,
            spec,
            output_type=output_type,
            blocking=declares_blocking(function),
            **self._widths(),
        )
        return self._data._made(made, (function_of(made), *functions))

    def _combiner(self, name: str, function: Any, output_type: TypeInformation | None) -> SpecTransformation:
        read = self._data._rows()
        spec = GroupCombineOperator(
            function=self._builder.pickle(function, name), key_selector=self._pickled_key, order=self._order
        )
        return self._builder.one_input(
            read,
            name,
            spec,
            output_type=output_type,
            blocking=declares_blocking(function),
            # In one chain with what makes the rows.
            parallelism_like=operator_behind(read),
        )

    def _by_key(self, read: Transformation) -> Transformation:
        return self._builder.partition(
            read, by_key(self._builder, self._pickled_key, self._partitioner, "group_by")
        )

    def _widths(self) -> dict[str, Any]:
        return {"parallelism": 1, "max_parallelism": 1, "non_parallel": True} if self._is_one else {}

    def _sort_field(self, field: Any, order: Order) -> SortField:
        return sort_field(self._data, "sort_group", field, order)


class UnsortedGroups(Grouping[D]):
    """The rows of a data set in groups of equal keys; the rows of a group have no order."""

    def reduce(self, reducer: Callable[[Any, Any], Any] | ReduceFunction[Any]) -> D:
        """Return the row to which an associative and commutative function reduces each group.

        Rows are reduced before they are sent, and again behind it.
        """
        require_function(reducer, ReduceFunction, "reduce")
        rich = isinstance(reducer, RichFunction) or is_rich(reducer)
        pairwise = PairwiseReduce(reducer)
        if rich:
            # Its open() may look at the task: the function runs as one of its own before the shuffle, too.
            record_type = self._data.transformation.output_type
            return self._reduce_group("Reduce", pairwise, record_type, combines=True)
        return self._reduced("Reduce", reducer, pairwise)

    def min_by(self, *fields: Field) -> D:
        """Return the row of each group with the least values of these fields, the first of them first."""
        return self._extreme_row("min_by", AggregateKind.MIN_BY, fields)

    def max_by(self, *fields: Field) -> D:
        """Return the row of each group with the greatest values of these fields, the first of them first."""
        return self._extreme_row("max_by", AggregateKind.MAX_BY, fields)

    def first_rows(self) -> D:
        """Some row of each group."""
        return self._reduced("Distinct", first_of, None)

    # ------------------------------------------------------------------ shared with aggregates

    def _extreme_row(self, call: str, kind: AggregateKind, fields: tuple[Field, ...]) -> D:
        record_type = self._data.transformation.output_type
        if not fields:
            raise InvalidProgramError(
                f"{call}() needs the positions or names of the fields that are compared"
            )
        places = [place_of(call, field, record_type) for field in fields]
        if len(places) == 1 and isinstance(places[0], int):
            return self.field_aggregate(call, kind, places[0])
        selector = selector_of(call, fields, record_type)
        return self._reduced(call, ExtremeRow(selector, smallest=kind is AggregateKind.MIN_BY), None)

    def field_aggregate(self, name: str, kind: AggregateKind, position: int) -> D:
        """One built-in aggregate of one field."""
        spec = AggregateOperator(kind=kind, position=position, key_selector=self._pickled_key)
        return self._rolling(name, spec)

    def _reduced(self, name: str, function: Any, pairwise: PairwiseReduce | None) -> D:
        """A reduce that folds rows before they are sent; with broadcast variables it becomes a reduce_group."""
        spec = ReduceOperator(
            function=self._builder.pickle(function, name), key_selector=self._pickled_key, commutes=True
        )
        reduced = self._rolling(name, spec)
        if pairwise is None:
            return reduced
        pickled = self._builder.pickle(pairwise, name)
        operation = FunctionOperation(
            reduced._settings().operator(name),
            lambda settings: GroupReduceOperator(
                function=pickled,
                broadcast_variables=settings.variables,
                parameters=settings.parameters,
            ),
        )
        return self._data._made(reduced.transformation, (operation,))

    def _rolling(self, name: str, spec: ReduceOperator | AggregateOperator) -> D:
        read = self._by_key(self._data._rows())
        return self._data._operation(
            read, name, spec, self._data.transformation.output_type, **self._widths()
        )


class WholeOperations(PartitionOperations[D]):
    """Rows with the operations on all of them as one group, and on groups of equal ones."""

    def reduce(self, reducer: Callable[[Any, Any], Any] | ReduceFunction[Any]) -> D:
        """Return the one row to which an associative and commutative function reduces all rows."""
        return self._one_group().reduce(reducer)

    def reduce_group(
        self,
        reducer: Callable[[Iterator[Any]], Iterable[Any] | None] | GroupReduceFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> D:
        """Return all results of a function that is called once with an iterator of all rows, if there are any."""
        return self._one_group().reduce_group(reducer, output_type)

    def combine_group(
        self,
        combiner: Callable[[Iterator[Any]], Iterable[Any] | None] | GroupCombineFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> D:
        """Return all results of a function that is called with as many rows of a partition as fit into memory."""
        return self._one_group().combine_group(combiner, output_type)

    def min_by(self, *fields: Field) -> D:
        """Return the row with the least values of these fields, the first of them first."""
        return self._one_group().min_by(*fields)

    def max_by(self, *fields: Field) -> D:
        """Return the row with the greatest values of these fields, the first of them first."""
        return self._one_group().max_by(*fields)

    def distinct(self, *keys: Key) -> D:
        """Return one row for each key: fields, or one key selector, or the row itself if nothing is given."""
        selector = key_of("distinct", keys or ("*",), self.transformation.output_type)
        return UnsortedGroups(self, selector).first_rows()

    def _one_group(self) -> UnsortedGroups[D]:
        return UnsortedGroups(self, one_group, is_one=True)
