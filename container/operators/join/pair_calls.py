"""PairCalls: calls the ProcessJoinFunction of a join for one pair of rows after the other.

Owner: the task thread. One context serves all pairs of a subtask. Must not know which rows are a pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from yarrow.container.codegen.user_functions import results_of
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.datastream.functions.process_join_function import ProcessJoinFunction

#: Results with their timestamps.
Results = Iterator[tuple[Any, int | None]]


class PairContext(ProcessJoinFunction.Context):
    """The times of the pair at hand."""

    left: int | None = None
    right: int | None = None
    result: int | None = None

    def get_left_timestamp(self) -> int | None:
        return self.left

    def get_right_timestamp(self) -> int | None:
        return self.right

    def get_timestamp(self) -> int | None:
        return self.result


#: Calls the function of a join for a pair; None = it has no results.
ProcessPair = Callable[[Any, Any, PairContext], Iterable[Any] | None]


class PairCalls:
    """The calls of one subtask. Code that calls `process` itself fills `context` before."""

    def __init__(
        self,
        process: ProcessPair,
        operator: str,
        key: Callable[[], Any],
    ) -> None:
        """`process`: the function's `process_element`. `key` gives the key at hand, for messages."""
        self.process = process
        self._operator = operator
        self._key = key
        self.context = PairContext()

    def of_left(self, left: Any, time: int, partners: Sequence[tuple[int, bool, Any]]) -> Results:
        """The results of a left row with each right one (time, -, row); they bear the later time of their pair."""
        context, process = self.context, self.process
        context.left, right = time, None
        try:
            for other_time, _, right in partners:
                context.right = other_time
                context.result = later = max(time, other_time)
                for result in results_of(process(left, right, context)):
                    yield result, later
        except Exception as error:
            raise self.failure(left, right, error) from error

    def of_right(self, right: Any, time: int, partners: Sequence[tuple[int, bool, Any]]) -> Results:
        """The same of a right row with left ones."""
        context, process = self.context, self.process
        context.right, left = time, None
        try:
            for other_time, _, left in partners:
                context.left = other_time
                context.result = later = max(time, other_time)
                for result in results_of(process(left, right, context)):
                    yield result, later
        except Exception as error:
            raise self.failure(left, right, error) from error

    def at(
        self, result_time: int | None, left: Any, left_time: int | None, right: Any, right_time: int | None
    ) -> Results:
        """The results of a pair, or of a row without a partner, with a time that the join chooses.

        All methods raise OperatorFailure with both rows and the key.
        """
        context = self.context
        context.left, context.right, context.result = left_time, right_time, result_time
        try:
            for result in results_of(self.process(left, right, context)):
                yield result, result_time
        except Exception as error:
            raise self.failure(left, right, error) from error

    def failure(self, left: Any, right: Any, error: Exception) -> OperatorFailure:
        """The failure of a call for two rows."""
        if isinstance(error, OperatorFailure):
            return error
        record = f"{short_record(left)} with {short_record(right)} (key {short_record(self._key())})"
        return OperatorFailure(self._operator, record, error)
