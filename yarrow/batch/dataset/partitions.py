"""Partitions of data sets: by hash, by range or by a partitioner of the program, sorted partitions, and first rows.

Owner: the thread that builds the program. The partitions are those of the next operation. Must not know the class of
data sets that a program sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from yarrow.batch.dataset.data_set_ends import DataSetEnds
from yarrow.batch.dataset.fields import Key, key_of, selector_of
from yarrow.batch.dataset.order import Order
from yarrow.batch.dataset.partitioners import (
    RangeBounds,
    SampledOrders,
    as_told,
    first_of_pair,
    hash_partition,
    range_of,
    second_of_pair,
)
from yarrow.batch.dataset.reducers import check_count
from yarrow.batch.dataset.row_operations import RowOperations
from yarrow.container.operators.data_set.sorted_rows import order_of
from yarrow.datastream.functions import KeySelector, Partitioner, RuntimeContext
from yarrow.datastream.functions.data_set_functions import RichMapFunction
from yarrow.datastream.program.graph_builder import GraphBuilder
from yarrow.datastream.program.user_functions import require_function
from yarrow.runtime.graph.data_set_spec import FirstRowsOperator, SortField, SortPartitionOperator
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec
from yarrow.runtime.graph.transformations import Transformation, operator_behind

#: The class of data sets that a program sees.
D = TypeVar("D", bound=RowOperations[Any])
_BOUNDS = "bounds of ranges"


class WithRange(RichMapFunction[Any, Any]):
    """Puts the range of each row before it."""

    def __init__(self, order: Callable[[Any], Any]) -> None:
        self._order = order

    def open(self, runtime_context: RuntimeContext) -> None:
        (self._bounds,) = self.get_runtime_context().get_broadcast_variable(_BOUNDS)

    def map(self, value: Any) -> Any:
        return range_of(self._order(value), self._bounds), value


def partitioned(
    data: RowOperations[D],
    call: str,
    keys: tuple[Any, ...],
    partitioner: Callable[[Any, int], int] | Partitioner[Any],
) -> D:
    """The same rows, each in the partition that the partitioner gives its key."""
    require_function(partitioner, Partitioner, call)
    selector = key_of(call, keys, data.transformation.output_type)
    return data._made(_sent(data, data._rows(), call, selector, partitioner))


def _sent(
    data: RowOperations[D], read: Transformation, call: str, selector: Any, partitioner: Any
) -> Transformation:
    builder = data._builder
    spec = PartitionerSpec(
        kind=PartitionerKind.CUSTOM,
        key_selector=builder.pickle(selector, call, "key selector"),
        function=builder.pickle(partitioner, call, "partitioner"),
    )
    return builder.partition(read, spec)


def ranged(data: RowOperations[D], keys: tuple[Any, ...]) -> D:
    """The same rows; those of a partition have keys between those of the partitions beside it.

    The bounds come from a sample of the keys, which a first pass over the rows takes.
    """
    call = "partition_by_range"
    record_type = data.transformation.output_type
    order = order_of([(key_of(call, keys, record_type), True)])
    partitions = data._environment.get_parallelism()
    samples = data.map_partition(SampledOrders(order).map_partition).name("Sample of keys")
    bounds = samples.rebalance().map_partition(RangeBounds(partitions).map_partition).set_parallelism(1)
    found = data.map(WithRange(order)).name("Range of key").with_broadcast_set(bounds, _BOUNDS)
    sent = data._made(_sent(data, found.transformation, call, first_of_pair, as_told))
    made: D = sent.map(second_of_pair, record_type).name("Range partition")
    return made


def sorted_partitions(data: RowOperations[Any], fields: tuple[SortField, ...]) -> Transformation:
    """The same partitions with their rows in order."""
    read = data._rows()
    behind = operator_behind(read)
    return data._builder.one_input(
        read,
        "SortPartition",
        SortPartitionOperator(fields=fields),
        output_type=data.transformation.output_type,
        parallelism_like=behind if behind is read else None,
    )


def by_key(builder: GraphBuilder, key_selector: bytes, partitioner: Any, call: str) -> PartitionerSpec:
    """Sends rows of equal keys to one task: the one that the partitioner names, or else the one of their key group.

    Raises TypeError, naming `call`, for what is no partitioner.
    """
    if partitioner is None:
        return PartitionerSpec(kind=PartitionerKind.KEY_GROUP, key_selector=key_selector)
    require_function(partitioner, Partitioner, call)
    function = builder.pickle(partitioner, call, "partitioner")
    return PartitionerSpec(kind=PartitionerKind.KEY_GROUP, key_selector=key_selector, function=function)


def sort_field(data: DataSetEnds, call: str, field: Any, order: Order) -> SortField:
    """A part of the order of rows. Raises TypeError and InvalidProgramError, naming `call`, for what is none."""
    if not isinstance(order, Order):
        raise TypeError(f"{call} takes Order.ASCENDING or Order.DESCENDING, not {order!r}")
    selector: Any = field
    if isinstance(field, int | str):
        selector = selector_of(call, (field,), data.transformation.output_type)
    else:
        require_function(field, KeySelector, call)
    return SortField(data._builder.pickle(selector, call, "key selector"), order.is_ascending())


def first_rows(data: RowOperations[Any], n: int) -> Transformation:
    """Any n rows, or all if there are fewer."""
    check_count(n)
    builder, record_type = data._builder, data.transformation.output_type
    read = data._rows()
    behind = operator_behind(read)
    some = builder.one_input(
        read,
        "First (combine)",
        FirstRowsOperator(count=n),
        output_type=record_type,
        parallelism_like=behind if behind is read else None,
    )
    one = builder.partition(some, PartitionerSpec(kind=PartitionerKind.GLOBAL))
    return builder.one_input(
        one, "First", FirstRowsOperator(count=n), output_type=record_type, parallelism=1, non_parallel=True
    )


class PartitionOperations(RowOperations[D]):
    """Rows with the operations on their partitions."""

    def partition_by_hash(self, *keys: Key) -> D:
        """Return the same rows; the next operation has those of equal keys in one partition."""
        return partitioned(self, "partition_by_hash", keys, hash_partition)

    def partition_by_range(self, *keys: Key) -> D:
        """Return the same rows; the keys of a partition come before those of the next one.

        A first pass over the rows takes a sample of the keys. The partitions have about as many rows each.
        """
        return ranged(self, keys)

    def partition_custom(self, partitioner: Callable[[Any, int], int] | Partitioner[Any], *keys: Key) -> D:
        """Return the same rows; the next operation has each in the partition that `partitioner(key, number)` names."""
        return partitioned(self, "partition_custom", keys, partitioner)

    def first(self, n: int) -> D:
        """Return any n rows, or all if there are fewer."""
        return self._made(first_rows(self, n))
