"""Specs of operators that wait for asynchronous functions. Owner: none (frozen values).

Must not import operators or call user functions, as operator_spec says.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from yarrow.runtime.graph.operator_spec import OperatorSpec


class ResultOrder(StrEnum):
    """The order in which results of an asynchronous function leave."""

    #: As the records came.
    ORDERED = "ordered"
    #: As the results come, but never past a watermark.
    UNORDERED = "unordered"
    #: As the records of each key came, and never past a watermark.
    BY_KEY = "by_key"


class AsyncBatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows an asynchronous function gets at once."""

    max_rows: int
    #: Milliseconds that a row waits for others.
    max_wait_ms: int
    #: Milliseconds that a call should take at most: batches shrink behind longer ones.
    latency_ms: int


class AsyncWaitOperator(OperatorSpec, frozen=True, kw_only=True, tag="async_wait"):
    """An asynchronous function that waits for the answers of many records at a time."""

    opens_outside = True
    keeps_state_as = "an asynchronous function"
    operator_package = "asynchronous"
    on_error_inputs: ClassVar[tuple[int, ...]] = (0,)

    function: bytes
    #: The pickled AsyncRetryStrategy.
    strategy: bytes
    #: Milliseconds from the first attempt to the end of all attempts of a call.
    timeout_ms: int
    #: Most rows whose results have not been emitted.
    capacity: int
    order: ResultOrder
    #: Number of threads that call the function; 0 = it is a coroutine function.
    threads: int = 0
    #: Set for an AsyncBatchFunction.
    batch: AsyncBatchLimits | None = None
    #: Set behind key_by.
    key_selector: bytes | None = None


class AsyncByKeyOperator(AsyncWaitOperator, frozen=True, kw_only=True, tag="async_by_key"):
    """An asynchronous function whose results leave in the order of each key: records in flight belong to their key."""

    # The list has records in flight, and an ended subtask has none.
    ended_subtasks_leave_no_unions = True


class AsyncColumnsOperator(AsyncWaitOperator, frozen=True, kw_only=True, tag="async_columns"):
    """An asynchronous function of record batches."""

    #: The Arrow schema of its results (IPC bytes); None = not declared.
    schema: bytes | None = None

    @property
    def emitted_schema(self) -> bytes | None:
        return self.schema
