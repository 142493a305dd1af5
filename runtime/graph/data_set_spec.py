"""Specs of the operators of one data set, besides those that it shares with streams.

Owner: none (frozen values). Functions and key selectors are cloudpickle bytes. Must not import operators.
"""

from __future__ import annotations

from typing import ClassVar

from yarrow.runtime.graph.operator_spec import OperatorSpec, RowShape
from yarrow.runtime.graph.two_data_sets_spec import SortField


class DataSetFunctionOperator(OperatorSpec, frozen=True, kw_only=True):
    """Base of the operators of one data set that run a user's function.

    Input 0 has the rows. Each further input is a broadcast variable, which the function finds by its name.
    """

    takes_inputs_in_turn: ClassVar[bool] = False

    function: bytes
    #: Names of the inputs from 1 on.
    broadcast_variables: tuple[str, ...] = ()


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
