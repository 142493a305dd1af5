"""State descriptors: the name and the declared type of a state, and the function that folds added values.

Values that travel with the functions of a program; usable from any thread. The name and type of a state are part of
every snapshot; the descriptor itself is not. It must not know backends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from yarrow.common.typeinfo import ListTypeInfo, MapTypeInfo, TypeInformation, Types
from yarrow.datastream.state.folding import Aggregation, Reduction
from yarrow.datastream.state.time_to_live import StateTtlConfig

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


class StateDescriptor:
    """The name and type of a state; the name is part of every snapshot.

    Raises ValueError for an empty name and TypeError for a value that is no type.
    """

    def __init__(self, name: str, type_info: TypeInformation) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a state must be a non-empty string, not {name!r}")
        self.name = name
        self.type_info = type_info
        self.ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire."""
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StateDescriptor)
            and type(self) is type(other)
            and (self.name, self.type_info) == (other.name, other.type_info)
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info})"


class ValueStateDescriptor(StateDescriptor, Generic[T]):
    """Declares a ValueState. Without a type, values are pickled."""

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, _declared(name, value_type_info))


class ListStateDescriptor(StateDescriptor, Generic[T]):
    """Declares a ListState by the type of its elements. Without a type, elements are pickled."""

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        self.elem_type_info = _declared(name, elem_type_info)
        super().__init__(name, ListTypeInfo(self.elem_type_info))


class MapStateDescriptor(StateDescriptor, Generic[K, V]):
    """Declares a MapState, or a broadcast state. Without types, keys and values are pickled."""

    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation | None = None,
        value_type_info: TypeInformation | None = None,
    ) -> None:
        self.key_type_info = _declared(name, key_type_info)
        self.value_type_info = _declared(name, value_type_info)
        super().__init__(name, MapTypeInfo(self.key_type_info, self.value_type_info))


class ReducingStateDescriptor(StateDescriptor, Generic[T]):
    """Declares a ReducingState with its function, a ReduceFunction or a plain function of two values."""

    def __init__(
        self,
        name: str,
        reduce_function: Reduction[T] | Callable[[T, T], T],
        type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(name, _declared(name, type_info))
        if not isinstance(reduce_function, Reduction):
            if not callable(reduce_function):
                raise TypeError(
                    f"state {name!r}: expected a ReduceFunction or a function, got {reduce_function!r}"
                )
            reduce_function = _CallableReduceFunction(reduce_function)
        self.reduce_function: Reduction[T] = reduce_function

    def get_reduce_function(self) -> Reduction[T]:
        """Return the function; a plain one comes back as a ReduceFunction."""
        return self.reduce_function


class AggregatingStateDescriptor(StateDescriptor, Generic[IN, ACC, OUT]):
    """Declares an AggregatingState with its function and the type of the accumulator."""

    def __init__(
        self,
        name: str,
        agg_function: Aggregation[IN, ACC, OUT],
        state_type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(name, _declared(name, state_type_info))
        if not isinstance(agg_function, Aggregation):
            raise TypeError(f"state {name!r}: expected an AggregateFunction, got {agg_function!r}")
        self.agg_function = agg_function

    def get_agg_function(self) -> Aggregation[IN, ACC, OUT]:
        """Return the function."""
        return self.agg_function


class _CallableReduceFunction(Reduction[T]):
    """A plain function of two values as a ReduceFunction."""

    def __init__(self, function: Callable[[T, T], T]) -> None:
        self._function = function

    def reduce(self, value1: T, value2: T) -> T:
        return self._function(value1, value2)


def _declared(name: str, type_info: TypeInformation | None) -> TypeInformation:
    if type_info is None:
        return Types.PICKLED_BYTE_ARRAY()
    if not isinstance(type_info, TypeInformation):
        raise TypeError(
            f"state {name!r}: the type must be a TypeInformation such as Types.LONG(), not {type_info!r}"
        )
    return type_info
