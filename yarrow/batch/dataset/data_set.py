"""DataSet: the rows of a bounded program, what operations make of them, and the environment of the program.

Owner: the thread that builds the program. Each method adds a transformation and returns another DataSet; nothing runs
before `execute`, `collect`, `count` or `print`. Names and meanings are those of Flink's DataSet API.
The classes of this module name each other in their signatures, so they stand together. What they do is in the modules
below, which take the class of data sets as a type variable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import isgeneratorfunction
from typing import Any

from yarrow.batch.dataset.aggregations import AggregateCalls, Aggregations, aggregated, place_of_aggregate
from yarrow.batch.dataset.csv_reader import CsvFiles
from yarrow.batch.dataset.data_sources import DataSources
from yarrow.batch.dataset.fields import Field, Key, key_of, one_group
from yarrow.batch.dataset.grouping import Grouping, UnsortedGroups, WholeOperations
from yarrow.batch.dataset.iteration_graph import OpenIteration
from yarrow.batch.dataset.iterations import DeltaLoop, IterationSettings
from yarrow.batch.dataset.joins import (
    CoGroups,
    CrossedSets,
    JoinCalls,
    JoinedSets,
    KeyedSets,
    OperatorSets,
    Pairs,
    pair_type,
    paired,
    projected_fields,
    projected_type,
)
from yarrow.batch.dataset.order import Order
from yarrow.batch.dataset.partitions import sort_field, sorted_partitions
from yarrow.batch.dataset.row_operations import FunctionOperation, function_of
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.functions import Partitioner
from yarrow.datastream.functions.two_data_sets_functions import (
    CrossFunction,
    FlatJoinFunction,
    JoinFunction,
)
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import require_function
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.data_set_spec import JoinKind, ProjectedField, SortField
from yarrow.runtime.graph.transformations import Transformation


class ExecutionEnvironment(DataSources["DataSet"]):
    """A program of data sets under construction, its configuration, and the way to execute it."""

    def read_csv_file(self, file_path: str) -> CsvReader:
        """Return a reader of a CSV file, or of those in a folder; its `types` or `row_type` gives the data set."""
        return CsvReader(self, file_path)

    def _data_set(self, transformation: Transformation) -> DataSet:
        return DataSet(self, transformation)


class DataSet(
    WholeOperations["DataSet"],
    AggregateCalls["AggregatedDataSet"],
    JoinCalls["DataSet", "JoinOperatorSets"],
):
    """The rows that an operation gives.

    Settings such as `name` or `set_parallelism` concern the operation that the data set comes from.
    """

    _environment: ExecutionEnvironment

    def __init__(
        self,
        environment: ExecutionEnvironment,
        transformation: Transformation,
        functions: tuple[FunctionOperation, ...] = (),
    ) -> None:
        """`functions`: the operators that run the function of the operation."""
        super().__init__(environment, transformation, functions)

    def get_execution_environment(self) -> ExecutionEnvironment:
        """Return the environment that the data set belongs to."""
        return self._environment

    # ------------------------------------------------------------------ groups and partitions

    def group_by(self, *keys: Key) -> UnsortedGrouping:
        """Return the rows in groups of equal keys: fields by position or name, or one key selector."""
        return UnsortedGrouping(self, key_of("group_by", keys, self.transformation.output_type))

    def aggregate(self, agg: Aggregations, field: Field) -> AggregatedDataSet:
        """Return one row with the aggregate of a field in its place; `and_` adds further ones."""
        return UnsortedGrouping(self, one_group, is_one=True).aggregate(agg, field)

    def sort_partition(self, field: Key, order: Order = Order.ASCENDING) -> SortedPartitions:
        """Return the same partitions with their rows in order of a field, or of what a key selector gives."""
        return SortedPartitions(self, (sort_field(self, "sort_partition", field, order),))

    # ------------------------------------------------------------------ two data sets

    def _join(self, kind: JoinKind, other: DataSet) -> JoinOperatorSets:
        return JoinOperatorSets(kind, self, other)

    def co_group(self, other: DataSet) -> CoGroupOperatorSets:
        """Begin a common grouping: a function gets the rows of each key of both data sets."""
        return CoGroupOperatorSets("CoGroup", self, other)

    def cross(self, other: DataSet) -> CrossedDataSet:
        """Return all pairs of rows; each task reads the other data set whole."""
        return CrossedDataSet(self._environment, CrossedSets(self, other, broadcast_input=1))

    def cross_with_tiny(self, other: DataSet) -> CrossedDataSet:
        """Return all pairs of rows; the other data set is small, and each task reads it whole."""
        return self.cross(other)

    def cross_with_huge(self, other: DataSet) -> CrossedDataSet:
        """Return all pairs of rows; the other data set is large, and each task reads this one whole."""
        return CrossedDataSet(self._environment, CrossedSets(self, other, broadcast_input=0))

    # ------------------------------------------------------------------ iterations

    def iterate(self, max_iterations: int) -> IterativeDataSet:
        """Begin a bulk iteration with the rows of this data set; `close_with` ends it."""
        return IterativeDataSet(self, max_iterations)

    def iterate_delta(self, workset: DataSet, max_iterations: int, *keys: Key) -> DeltaIteration:
        """Begin a delta iteration: this data set is the solution set, whose rows are replaced by key."""
        return DeltaIteration(self, workset, max_iterations, keys)

    # ------------------------------------------------------------------ operations of the program's own

    def run_operation(self, operation: CustomUnaryOperation) -> DataSet:
        """Return what an operation that others have written makes of this data set."""
        if not isinstance(operation, CustomUnaryOperation):
            raise TypeError(
                f"run_operation takes a CustomUnaryOperation, not {type(operation).__name__}; call a plain function of"
                " data sets itself"
            )
        operation.set_input(self)
        return operation.create_result()

    # ------------------------------------------------------------------ what the modules below ask for

    def _made(self, transformation: Transformation, functions: tuple[FunctionOperation, ...] = ()) -> DataSet:
        return DataSet(self._environment, transformation, functions)

    def _itself(self) -> DataSet:
        return self


class CustomUnaryOperation(ABC):
    """An operation that is made of several others, for `run_operation`."""

    @abstractmethod
    def set_input(self, input_data: DataSet) -> None:
        """Take the data set; called first."""

    @abstractmethod
    def create_result(self) -> DataSet:
        """Return what the operation makes of it."""


class CsvReader(CsvFiles[DataSet]):
    """Collects how CSV files are read; `types` and `row_type` end it with a data set."""


# ---------------------------------------------------------------------- groups and partitions


class UnsortedGrouping(UnsortedGroups[DataSet], AggregateCalls["AggregatedDataSet"]):
    """The rows of a data set in groups of equal keys; the rows of a group have no order."""

    def sort_group(self, field: Key, order: Order = Order.ASCENDING) -> SortedGrouping:
        """Return the same groups with their rows in order of a field, or of what a key selector gives."""
        return SortedGrouping(
            self._data, self._key, order=(self._sort_field(field, order),), partitioner=self._partitioner
        )

    def aggregate(self, agg: Aggregations, field: Field) -> AggregatedDataSet:
        """Return a row for each group with the aggregate of a field in its place; `and_` adds further ones.

        The other fields are those of some row of the group.
        """
        return AggregatedDataSet(self, ((agg, place_of_aggregate(agg, field, self._data)),))


class SortedGrouping(Grouping[DataSet]):
    """The rows of a data set in groups of equal keys, with the rows of each group in order."""

    def sort_group(self, field: Key, order: Order = Order.ASCENDING) -> SortedGrouping:
        """Return the same groups with rows that are equal so far in order of a further field."""
        order_of_rows = (*self._order, self._sort_field(field, order))
        return SortedGrouping(self._data, self._key, order=order_of_rows, partitioner=self._partitioner)


class AggregatedDataSet(DataSet):
    """A row for each group, with aggregates in the places of their fields."""

    def __init__(self, grouping: UnsortedGrouping, aggregates: tuple[tuple[Aggregations, int], ...]) -> None:
        """`aggregates`: each with the place of its field."""
        environment = grouping.get_data_set().get_execution_environment()
        super().__init__(environment, aggregated(grouping, aggregates))
        self._grouping = grouping
        self._aggregates = aggregates

    def and_(self, agg: Aggregations, field: Field) -> AggregatedDataSet:
        """Return rows with one more aggregate, of another field."""
        place = place_of_aggregate(agg, field, self._grouping.get_data_set())
        if place in [taken for _, taken in self._aggregates]:
            raise InvalidProgramError(
                f"and_({agg}, {field!r}): the field has an aggregate already, in the one place that it has in a row. "
                "Map the rows so that the field stands twice."
            )
        return AggregatedDataSet(self._grouping, (*self._aggregates, (agg, place)))

    def and_sum(self, field: Field) -> AggregatedDataSet:
        """Return rows with the sum of another field, too."""
        return self.and_(Aggregations.SUM, field)

    def and_min(self, field: Field) -> AggregatedDataSet:
        """Return rows with the least value of another field, too."""
        return self.and_(Aggregations.MIN, field)

    def and_max(self, field: Field) -> AggregatedDataSet:
        """Return rows with the greatest value of another field, too."""
        return self.and_(Aggregations.MAX, field)


class SortedPartitions(DataSet):
    """The rows of each partition in order."""

    def __init__(self, data: DataSet, fields: tuple[SortField, ...]) -> None:
        super().__init__(data.get_execution_environment(), sorted_partitions(data, fields))
        self._data = data
        self._fields = fields

    def sort_partition(self, field: Key, order: Order = Order.ASCENDING) -> SortedPartitions:
        """Return the same partitions with rows that are equal so far in order of a further field."""
        return SortedPartitions(
            self._data, (*self._fields, sort_field(self._data, "sort_partition", field, order))
        )


# ---------------------------------------------------------------------- two data sets


class ProjectedDataSet(DataSet):
    """Tuples of fields of both rows; each call adds fields behind those so far."""

    def __init__(
        self, environment: ExecutionEnvironment, pairs: Pairs, fields: tuple[ProjectedField, ...]
    ) -> None:
        super().__init__(environment, paired(pairs, projected_type(pairs, fields), projection=fields))
        self._pairs = pairs
        self._fields = fields

    def project_first(self, *fields: Field) -> ProjectedDataSet:
        """Add fields of the first row; without fields, the row itself."""
        more = projected_fields(self._pairs, 0, fields)
        return ProjectedDataSet(self._environment, self._pairs, (*self._fields, *more))

    def project_second(self, *fields: Field) -> ProjectedDataSet:
        """Add fields of the second row; without fields, the row itself."""
        more = projected_fields(self._pairs, 1, fields)
        return ProjectedDataSet(self._environment, self._pairs, (*self._fields, *more))


class PairedDataSet(DataSet):
    """Pairs of rows, one of each data set; or what `with_` and `project_first` make of them."""

    def __init__(self, environment: ExecutionEnvironment, pairs: Pairs) -> None:
        super().__init__(environment, paired(pairs, pair_type(pairs)))
        self._pairs = pairs

    def project_first(self, *fields: Field) -> ProjectedDataSet:
        """Return tuples of fields of the first row; without fields, of the row itself."""
        return ProjectedDataSet(self._environment, self._pairs, projected_fields(self._pairs, 0, fields))

    def project_second(self, *fields: Field) -> ProjectedDataSet:
        """Return tuples of fields of the second row; without fields, of the row itself."""
        return ProjectedDataSet(self._environment, self._pairs, projected_fields(self._pairs, 1, fields))

    def _with(self, function: Any, output_type: TypeInformation | None, *, is_flat: bool) -> DataSet:
        made = paired(self._pairs, declared(output_type), function, is_flat=is_flat)
        return self._made(made, (function_of(made),))


class JoinedDataSet(PairedDataSet):
    """Pairs of rows with equal keys. An outer join has None in the place of a row that is missing."""

    _pairs: JoinedSets

    def with_partitioner(self, partitioner: Callable[[Any, int], int] | Partitioner[Any]) -> JoinedDataSet:
        """Return the same pairs, each made by the task that `partitioner(key, number of tasks)` names."""
        return JoinedDataSet(self._environment, self._pairs.partitioned_by(partitioner))

    def with_(
        self,
        function: Callable[[Any, Any], Any] | JoinFunction[Any, Any, Any] | FlatJoinFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataSet:
        """Return what the function gives for each pair.

        A FlatJoinFunction, and a generator, may give any number of results; any other function gives one.
        """
        is_flat = isinstance(function, FlatJoinFunction) or isgeneratorfunction(function)
        require_function(function, FlatJoinFunction if is_flat else JoinFunction, "with_")
        return self._with(function, output_type, is_flat=is_flat)


class CrossedDataSet(PairedDataSet):
    """Pairs of each row of one data set with each row of another one."""

    def with_(
        self,
        function: Callable[[Any, Any], Any] | CrossFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataSet:
        """Return what the function gives for each pair; a generator may give any number of results."""
        require_function(function, CrossFunction, "with_")
        return self._with(function, output_type, is_flat=isgeneratorfunction(function))


class JoinOperatorSets(OperatorSets[JoinedDataSet]):
    """Two data sets that are joined when `where` and `equal_to` have given their keys."""

    def __init__(self, kind: JoinKind, first: DataSet, second: DataSet) -> None:
        super().__init__(JoinedSets.name_of(kind), first, second)
        self._kind = kind
        self._environment = first.get_execution_environment()

    def _together(self, keys: tuple[Any, Any]) -> JoinedDataSet:
        return JoinedDataSet(self._environment, JoinedSets(self._kind, self._first, self._second, keys))


class CoGroupedDataSets(CoGroups[DataSet]):
    """Two data sets by key, which wait for the function of their groups."""


class CoGroupOperatorSets(OperatorSets[CoGroupedDataSets]):
    """Two data sets that are grouped together when `where` and `equal_to` have given their keys."""

    def __init__(self, name: str, first: DataSet, second: DataSet) -> None:
        super().__init__(name, first, second)
        self._data = first

    def _together(self, keys: tuple[Any, Any]) -> CoGroupedDataSets:
        pairs = KeyedSets(self._name, self._first, self._second, keys)
        return CoGroupedDataSets(self._data._made, pairs)


# ---------------------------------------------------------------------- iterations


class IterativeDataSet(IterationSettings, DataSet):
    """The data set with which a superstep of a bulk iteration begins."""

    def __init__(self, data: DataSet, max_iterations: int) -> None:
        self._loop = OpenIteration(data._builder, "Bulk Iteration", [data._rows()], max_iterations)
        super().__init__(data.get_execution_environment(), self._loop.inputs[0])

    def close_with(self, iteration_result: DataSet, termination_criterion: DataSet | None = None) -> DataSet:
        """End the body with what begins the next superstep; return what the last one has left.

        A superstep in which the termination criterion has no row is the last one.
        """
        result = self._same_program(iteration_result, "close_with")
        criterion = None
        if termination_criterion is not None:
            criterion = self._builder.as_rows(self._same_program(termination_criterion, "close_with"))
        (left,) = self._loop.close([self._builder.as_rows(result)], criterion)
        return self._made(left)


class DeltaIteration(DeltaLoop[DataSet]):
    """An iteration over a solution set, of which each superstep replaces rows by key, and a workset."""
