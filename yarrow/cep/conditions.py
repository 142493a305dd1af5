"""Conditions of patterns: which records a step takes, and which ones end a loop.

Owner: none; user code of a task calls them in the task thread, or `match` in the caller's. They must not change the
records that they see. Meaning and names are those of Flink's `org.apache.flink.cep.pattern.conditions`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from yarrow.common.values.conditions import AnyCondition, condition_of
from yarrow.datastream.functions import Function

if TYPE_CHECKING:
    import pyarrow.compute as pc

__all__ = ["Condition", "IterativeCondition", "RichIterativeCondition", "SimpleCondition", "as_condition"]


class IterativeCondition(Function, ABC):
    """A condition that may look at the records that a partial match has taken."""

    class Context(ABC):
        """What a condition may ask for besides the record."""

        @abstractmethod
        def get_events_for_pattern(self, name: str) -> list[Any]:
            """Return the records that the partial match has taken for a step, in their order; [] if there are none.

            Raises KeyError for a step that the pattern does not have.
            """

        @abstractmethod
        def timestamp(self) -> int:
            """Return the timestamp of the record at hand, in milliseconds."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the present time of the machine, in milliseconds since the epoch."""

    @abstractmethod
    def filter(self, value: Any, ctx: Context) -> bool:
        """Return True if the record fulfils the condition."""


class RichIterativeCondition(IterativeCondition, ABC):
    """An iterative condition that is opened and closed with its task, and has a runtime context.

    `open` gets a CepRuntimeContext.
    """


class SimpleCondition(Function, ABC):
    """A condition on the record alone."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return True if the record fulfils the condition."""


#: What `where`, `or_where` and `until` take: a callable of a record, or of a record and a context, may stand for both.
#: A condition over columns, or an Arrow expression, is for streams of record batches.
Condition: TypeAlias = (
    "SimpleCondition | IterativeCondition | Callable[..., bool] | AnyCondition | pc.Expression"
)


class CallableCondition(SimpleCondition):
    """A callable of a record as a condition."""

    def __init__(self, call: Callable[[Any], bool]) -> None:
        self.call = call

    def filter(self, value: Any) -> bool:
        return self.call(value)


class _CallableIterativeCondition(IterativeCondition):
    """A callable of a record and a context as a condition."""

    def __init__(self, call: Callable[[Any, IterativeCondition.Context], bool]) -> None:
        self._call = call

    def filter(self, value: Any, ctx: IterativeCondition.Context) -> bool:
        return self._call(value, ctx)


class SubtypeCondition(SimpleCondition):
    """True for records of a class."""

    def __init__(self, subtype: type) -> None:
        self.subtype = subtype

    def filter(self, value: Any) -> bool:
        return isinstance(value, self.subtype)


class ColumnCondition(SimpleCondition):
    """A condition over columns, whose results are computed a record batch at a time, before a record is looked at."""

    def __init__(self, expression: AnyCondition) -> None:
        self.expression = expression
        #: The result for the record at hand; whoever runs the pattern sets it before each record.
        self.holds = False

    def filter(self, value: Any) -> bool:
        return self.holds


def call_of(condition: SimpleCondition) -> Callable[[Any], bool]:
    """What decides on a record: the program's own callable, if it gave one."""
    return condition.call if isinstance(condition, CallableCondition) else condition.filter


def as_condition(call: str, condition: object) -> SimpleCondition | IterativeCondition:
    """The condition that was given to `call`, a method of Pattern.

    Raises TypeError for what is none, and ValueError for an Arrow expression that cannot leave the process.
    """
    if isinstance(condition, SimpleCondition | IterativeCondition):
        return condition
    try:
        over_columns = condition_of(condition)
    except ValueError as error:
        raise ValueError(f"{call}: {error}") from None
    if over_columns is not None:
        return ColumnCondition(over_columns)
    if not callable(condition):
        raise TypeError(
            f"{call} takes a SimpleCondition, an IterativeCondition, or a callable of a record (and a context), not"
            f" {condition!r}. On streams of columns it also takes a condition over columns, such as col('amount') > 5"
        )
    needed = _needed_arguments(condition)
    if needed > 2:
        raise TypeError(
            f"{call}: {condition!r} needs {needed} arguments, but gets a record, and a context at most. Give the"
            " others default values, or bind them with functools.partial"
        )
    return _CallableIterativeCondition(condition) if needed == 2 else CallableCondition(condition)


def _needed_arguments(condition: Callable[..., Any]) -> int:
    """Number of arguments that a callable needs. Builtins without a signature take one."""
    try:
        parameters = inspect.signature(condition).parameters.values()
    except ValueError:
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len([each for each in parameters if each.kind in positional and each.default is each.empty])
