"""Specs of the operators of data sets, besides those that they share with streams, and of stages of pipelines.

Owner: none (frozen values). Functions and key selectors are cloudpickle bytes. Must not import operators.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from yarrow.common.pipelines.stage import Stage
from yarrow.runtime.graph.operator_spec import OperatorSpec, RowShape


class SortField(msgspec.Struct, frozen=True):
    """A part of the order of rows: `selector` is the pickled function of its value."""

    selector: bytes
    ascending: bool = True


class DataSetOperator(OperatorSpec, frozen=True, kw_only=True):
    """Base of the operators of data sets that may run a user's function.

    The first inputs have the rows. Each further one is a broadcast variable, which the function finds by its name.
    """

    #: Names of the inputs behind those with rows.
    broadcast_variables: tuple[str, ...] = ()
    #: The pickled Configuration that the function finds when it is opened; None = an empty one.
    parameters: bytes | None = None


class DataSetFunctionOperator(DataSetOperator, frozen=True, kw_only=True):
    """Base of the operators of one data set, whose rows are input 0, that run a user's function."""

    takes_inputs_in_turn: ClassVar[bool] = False

    function: bytes


class BroadcastRowFunctionOperator(
    DataSetFunctionOperator, frozen=True, kw_only=True, tag="row_function_with_broadcast"
):
    """map, flat_map or filter of a data set, whose function reads broadcast variables."""

    shape: RowShape

    @property
    def keeps_rows(self) -> bool:
        return self.shape is RowShape.FILTER


class MapPartitionOperator(DataSetFunctionOperator, frozen=True, kw_only=True, tag="map_partition"):
    """Calls the function once with an iterator over all rows of the partition."""


class GroupReduceOperator(DataSetFunctionOperator, frozen=True, kw_only=True, tag="group_reduce"):
    """Calls the function once a key with an iterator over the rows of the key."""

    #: The order of the rows of a key; () = as they come.
    order: tuple[SortField, ...] = ()


class GroupCombineOperator(DataSetFunctionOperator, frozen=True, kw_only=True, tag="group_combine"):
    """Calls the function with rows of one key of one partition, as many as fit into memory; it may do so again."""

    key_selector: bytes
    order: tuple[SortField, ...] = ()


class JoinKind(StrEnum):
    """Whose rows a join keeps where the other side has none of their key."""

    INNER = "INNER"
    LEFT_OUTER = "LEFT_OUTER"
    RIGHT_OUTER = "RIGHT_OUTER"
    FULL_OUTER = "FULL_OUTER"

    @property
    def keeps_first(self) -> bool:
        """Whether rows of the first input without a partner are joined with None."""
        return self in (JoinKind.LEFT_OUTER, JoinKind.FULL_OUTER)

    @property
    def keeps_second(self) -> bool:
        """Whether rows of the second input without a partner are joined with None."""
        return self in (JoinKind.RIGHT_OUTER, JoinKind.FULL_OUTER)


class ProjectedField(msgspec.Struct, frozen=True):
    """A field of a joined row: of which input, and which one there."""

    input: int
    #: The position; None = the whole row.
    field: int | None


class TwoDataSetsOperator(DataSetOperator, frozen=True, kw_only=True):
    """Base of the operators of two data sets, whose rows are the inputs 0 and 1."""

    takes_inputs_in_turn: ClassVar[bool] = True

    #: The user's function; None = pairs of both rows, or `projection`.
    function: bytes | None = None
    #: The function gives any number of results.
    is_flat: bool = False
    #: Fields of the results, which are tuples.
    projection: tuple[ProjectedField, ...] = ()


class JoinOperator(TwoDataSetsOperator, frozen=True, kw_only=True, tag="join_data_sets"):
    """Joins rows of two keyed inputs that have equal keys."""

    kind: JoinKind
    key_selectors: tuple[bytes, bytes]


class CoGroupOperator(TwoDataSetsOperator, frozen=True, kw_only=True, tag="co_group_data_sets"):
    """Calls the function with the rows of each key, of two keyed inputs."""

    key_selectors: tuple[bytes, bytes]
    #: The order of the rows of a key, of each input; () = as they come.
    orders: tuple[tuple[SortField, ...], tuple[SortField, ...]] = ((), ())


class SolutionSetUpdateOperator(TwoDataSetsOperator, frozen=True, kw_only=True, tag="update_solution_set"):
    """Gives the last row of each key: of the second input if it has one, else of the first one."""

    key_selectors: tuple[bytes, bytes]


class CrossOperator(TwoDataSetsOperator, frozen=True, kw_only=True, tag="cross_data_sets"):
    """Joins each row of one input with each row of the other one, which is broadcast."""

    #: The input that each task reads whole.
    broadcast_input: int = 1


class SortPartitionOperator(OperatorSpec, frozen=True, kw_only=True, tag="sort_partition"):
    """Brings the rows of each partition into order."""

    fields: tuple[SortField, ...]


class FirstRowsOperator(OperatorSpec, frozen=True, kw_only=True, tag="first_rows"):
    """Passes on the first rows of each partition."""

    count: int

    @property
    def keeps_rows(self) -> bool:
        return True


class SparkStageOperator(OperatorSpec, frozen=True, kw_only=True, tag="spark_stage"):
    """A function of the SparkSession, which runs in the SparkDriver: the only operator of its vertex.

    The vertices of a pipeline all have this operator. Edges say which stage waits for which.
    """

    stage: Stage

    @property
    def is_bounded(self) -> bool:
        return True

    @property
    def spark_stage(self) -> Stage:
        return self.stage
