"""RowOperations: functions of rows and of partitions, their broadcast variables, unions and even distribution.

Owner: the thread that builds the program. Each method adds a transformation and returns another data set. Must not know
the class of data sets that a program sees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Self, TypeVar

import msgspec

from yarrow.batch.dataset.data_set_ends import DataSetEnds
from yarrow.batch.dataset.fields import place_of, type_of
from yarrow.batch.dataset.program_environment import ProgramEnvironment
from yarrow.common.configuration import Configuration
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.functions import FilterFunction, FlatMapFunction, MapFunction
from yarrow.datastream.functions.data_set_functions import MapPartitionFunction
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.data_set_spec import BroadcastRowFunctionOperator, MapPartitionOperator
from yarrow.runtime.graph.operator_spec import (
    OperatorSpec,
    PartitionerKind,
    PartitionerSpec,
    ProjectOperator,
    RowFunctionOperator,
    RowShape,
)
from yarrow.runtime.graph.transformations import SpecTransformation, Transformation

#: The class of data sets that a program sees.
D = TypeVar("D", bound="RowOperations[Any]")


class FunctionSettings(NamedTuple):
    """What the function of an operation finds when it is opened."""

    #: Names of broadcast variables.
    variables: tuple[str, ...] = ()
    #: The pickled Configuration; None = an empty one.
    parameters: bytes | None = None


@dataclass(frozen=True)
class FunctionOperation:
    """An operator that runs the function of an operation."""

    operator: SpecTransformation
    #: The spec of the operator with these settings.
    spec: Callable[[FunctionSettings], OperatorSpec]


class RowOperations(DataSetEnds, ABC, Generic[D]):
    """Rows with the operations on each of them; D is the class of what the operations return."""

    def __init__(
        self,
        environment: ProgramEnvironment,
        transformation: Transformation,
        functions: tuple[FunctionOperation, ...] = (),
    ) -> None:
        """`functions`: the operators that run the function of the operation."""
        super().__init__(environment, transformation)
        self._functions = functions
        self._function_settings = FunctionSettings()

    def with_broadcast_set(self, data: D, name: str) -> Self:
        """Let the function of the operation read all rows of another data set, as a broadcast variable.

        It finds them by `get_runtime_context().get_broadcast_variable(name)`, from `open` on. Raises
        InvalidProgramError if the operation has no function, or a variable of that name.
        """
        if not isinstance(name, str) or not name:
            raise TypeError(f"with_broadcast_set takes the name of the variable, not {name!r}")
        read = self._same_program(data, "with_broadcast_set")
        self._require_function(f"with_broadcast_set({name!r})")
        if name in self._function_settings.variables:
            raise InvalidProgramError(
                f"with_broadcast_set: '{self.transformation.name}' has a broadcast variable {name!r} already"
            )
        variables = (*self._function_settings.variables, name)
        self._function_settings = self._function_settings._replace(variables=variables)
        for each in self._functions:
            sent = self._builder.partition(
                self._builder.as_rows(read), PartitionerSpec(kind=PartitionerKind.BROADCAST)
            )
            each.operator.reads = (*each.operator.reads, sent)
            each.operator.spec = each.spec(self._function_settings)
        return self

    def with_parameters(self, parameters: Configuration) -> Self:
        """Let the function of the operation read these parameters; a later call replaces them.

        It finds them by `get_runtime_context().get_parameters()`, from `open` on. Raises InvalidProgramError if the
        operation has no function.
        """
        if not isinstance(parameters, Configuration):
            raise TypeError(f"with_parameters takes a Configuration, not {parameters!r}")
        self._require_function("with_parameters")
        pickled = self._builder.pickle(Configuration(parameters), self.transformation.name, "parameters")
        self._function_settings = self._function_settings._replace(parameters=pickled)
        for each in self._functions:
            each.operator.spec = each.spec(self._function_settings)
        return self

    def _require_function(self, call: str) -> None:
        if not self._functions:
            raise InvalidProgramError(
                f"{call}: '{self.transformation.name}' runs no function that could read it. Call it directly behind an "
                "operation with a function, such as map, reduce_group, or with_ of a join."
            )

    # ------------------------------------------------------------------ functions of rows

    def map(
        self, mapper: Callable[[Any], Any] | MapFunction[Any, Any], output_type: TypeInformation | None = None
    ) -> D:
        """Return the result of `mapper` for each row."""
        require_function(mapper, MapFunction, "map")
        return self._row_function("Map", RowShape.MAP, mapper, declared(output_type))

    def flat_map(
        self,
        flat_mapper: Callable[[Any], Iterable[Any] | None] | FlatMapFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> D:
        """Return all results of `flat_mapper`, an iterable or None for each row."""
        require_function(flat_mapper, FlatMapFunction, "flat_map")
        return self._row_function("FlatMap", RowShape.FLAT_MAP, flat_mapper, declared(output_type))

    def filter(self, filter_function: Callable[[Any], bool] | FilterFunction[Any]) -> D:
        """Return the rows for which the function is true."""
        require_function(filter_function, FilterFunction, "filter")
        return self._row_function("Filter", RowShape.FILTER, filter_function, self.transformation.output_type)

    def map_partition(
        self,
        map_partition: Callable[[Iterator[Any]], Iterable[Any] | None] | MapPartitionFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> D:
        """Return all results of a function that is called once for each partition, with an iterator of its rows."""
        require_function(map_partition, MapPartitionFunction, "map_partition")
        spec = MapPartitionOperator(function=self._builder.pickle(map_partition, "MapPartition"))
        return self._function(self._rows(), "MapPartition", spec, declared(output_type), map_partition)

    def project(self, *field_indexes: int) -> D:
        """Return tuples of these fields of tuples or Rows, in the order given."""
        record_type = self.transformation.output_type
        if not field_indexes or not all(type(index) is int for index in field_indexes):
            raise InvalidProgramError(f"project takes positions of fields, from 0 on, not {field_indexes!r}")
        for index in field_indexes:
            place_of("project", index, record_type)
        types = [type_of(index, record_type) for index in field_indexes]
        known = [each for each in types if each is not None]
        output_type = Types.TUPLE(known) if len(known) == len(types) else None
        return self._operation(
            self._rows(), "Projection", ProjectOperator(indexes=field_indexes), output_type
        )

    # ------------------------------------------------------------------ distribution

    def rebalance(self) -> D:
        """Return the same rows, dealt out evenly to the tasks of the next operation."""
        spec = PartitionerSpec(kind=PartitionerKind.REBALANCE)
        return self._made(self._builder.partition(self.transformation, spec))

    def union(self, other: D) -> D:
        """Return the rows of both data sets, which have one type."""
        read = self._same_program(other, "union")
        return self._made(self._builder.union([self._rows(), self._builder.as_rows(read)]))

    # ------------------------------------------------------------------ shared with groupings and pairs of data sets

    @abstractmethod
    def _made(self, transformation: Transformation, functions: tuple[FunctionOperation, ...] = ()) -> D:
        """The data set that a transformation of the same program puts out; `functions` as in the constructor."""

    @abstractmethod
    def _itself(self) -> D:
        """This data set."""

    def _row_function(
        self, name: str, shape: RowShape, function: Any, output_type: TypeInformation | None
    ) -> D:
        pickled = self._builder.pickle(function, name)
        plain = RowFunctionOperator(shape=shape, function=pickled)
        made = self._builder.one_input(
            self._rows(), name, plain, output_type=output_type, blocking=declares_blocking(function)
        )
        operation = FunctionOperation(
            made,
            lambda settings: BroadcastRowFunctionOperator(
                shape=shape,
                function=pickled,
                broadcast_variables=settings.variables,
                parameters=settings.parameters,
            ),
        )
        return self._made(made, (operation,))

    def _function(
        self,
        read: Transformation,
        name: str,
        spec: OperatorSpec,
        output_type: TypeInformation | None,
        function: Any,
        **settings: Any,
    ) -> D:
        """An operation whose spec has broadcast variables and parameters."""
        made = self._builder.one_input(
            read, name, spec, output_type=output_type, blocking=declares_blocking(function), **settings
        )
        return self._made(made, (function_of(made),))

    def _operation(
        self,
        read: Transformation,
        name: str,
        spec: OperatorSpec,
        output_type: TypeInformation | None,
        **settings: Any,
    ) -> D:
        """An operation without a function of the user's."""
        made = self._builder.one_input(read, name, spec, output_type=output_type, **settings)
        return self._made(made)


def function_of(operator: SpecTransformation) -> FunctionOperation:
    """An operator whose spec has broadcast variables and parameters."""
    spec = operator.spec
    return FunctionOperation(
        operator,
        lambda settings: msgspec.structs.replace(
            spec, broadcast_variables=settings.variables, parameters=settings.parameters
        ),
    )
