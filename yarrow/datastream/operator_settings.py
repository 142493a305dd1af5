"""The settings of one operator, shared by streams and sinks: name, ids, parallelism, chaining, slots.

Owner: the thread that builds the program. Each setter changes the transformation in place and returns the
object it was called on. Values are checked here where one operator alone decides, in the generators where the
graph does.
"""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import combinations
from typing import Self

from msgspec.structs import replace

from yarrow.common.time import Duration, Time, milliseconds_of
from yarrow.common.values.error_handling import ErrorPolicy, error_handling
from yarrow.common.values.rate_limit import checked_limit
from yarrow.datastream.slot_sharing_group import SlotSharingGroup
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.config.options.pipeline import MAX_MAX_PARALLELISM
from yarrow.runtime.graph.transformations import (
    ChainingStrategy,
    SpecTransformation,
    Transformation,
    has_no_time,
    origins_of,
    sources_of,
)


def group_name(slot_sharing_group: str | SlotSharingGroup) -> str:
    """Return the name of a group. Raises UnsupportedFeatureError for a group that asks for resources of its own."""
    if isinstance(slot_sharing_group, str):
        return slot_sharing_group
    if not isinstance(slot_sharing_group, SlotSharingGroup):
        raise TypeError(
            f"slot_sharing_group takes the name of a group or a SlotSharingGroup, not {slot_sharing_group!r}"
        )
    if slot_sharing_group != SlotSharingGroup(slot_sharing_group.name):
        raise UnsupportedFeatureError(
            f"Slot sharing group {slot_sharing_group.name!r} asks for resources of its own, but all slots of"
            " this version are alike. Leave the resources out, and set taskmanager.memory.process.size and"
            " taskmanager.numberOfTaskSlots."
        )
    return slot_sharing_group.name


def check_input_drift(operator: SpecTransformation) -> None:
    """Raise InvalidProgramError where no input stream of the operator can wait for another."""
    streams = [origin for read in operator.inputs for origin in origins_of(read)]
    if len(streams) < 2:
        raise InvalidProgramError(
            f"set_max_input_drift: operator {operator.name!r} reads one stream, which cannot be ahead of another."
            " Call it on an operator that reads two streams or a union."
        )
    for stream in streams:
        if has_no_time(stream):
            raise InvalidProgramError(
                f"set_max_input_drift: {stream.name!r} gives operator {operator.name!r} records without event time,"
                " so that the other stream would wait for ever. Call assign_timestamps_and_watermarks on that stream."
            )
    for first, second in combinations(streams, 2):
        for source in sources_of(first) & sources_of(second):
            raise InvalidProgramError(
                f"set_max_input_drift: two input streams of operator {operator.name!r} come from the source"
                f" {source.name!r}. While one of them waits, the source could not send the other what it waits for."
                " Leave the bound out, or read the source twice."
            )


class OperatorSettings:
    """The settings of the operator behind a stream or sink."""

    def __init__(self, transformation: Transformation) -> None:
        self.transformation = transformation

    def operator(self, method: str) -> SpecTransformation:
        """The operator. Raises InvalidProgramError for a partition, a union or a side output."""
        if not isinstance(self.transformation, SpecTransformation):
            words = re.findall("[A-Z][a-z]+", type(self.transformation).__name__)
            kind = " ".join(words[:-1]).lower()
            raise InvalidProgramError(
                f"{method}() concerns an operator, but this stream is a {kind}, which only says how records"
                f" reach the next one. Call {method}() on the operator before or behind."
            )
        return self.transformation

    def operator_with_letters(self, method: str) -> SpecTransformation:
        """The operator. Raises InvalidProgramError if the program does not ask it for dead letters."""
        operator = self.operator(method)
        if operator.errors.policy is not ErrorPolicy.DEAD_LETTER and not operator.spec.is_source:
            raise InvalidProgramError(
                f'{method}(): operator {operator.name!r} makes no dead letters. Call on_error("dead_letter") on it'
                f" before {method}()."
            )
        return operator

    def get_name(self) -> str:
        """Return the name of the operator."""
        return self.transformation.name

    def name(self, name: str) -> Self:
        """Set the name that plans, metrics and messages show."""
        if not isinstance(name, str):
            raise TypeError(f"name must be a text, not {name!r}")
        operator = self.operator("name")
        operator.name = f"{name}: Writer" if operator.spec.writes_for_sink else name
        return self

    def uid(self, uid: str) -> Self:
        """Set the id by which a savepoint finds the operator; unique in the program."""
        if not isinstance(uid, str) or not uid:
            raise ValueError(f"uid must be a non-empty text, not {uid!r}")
        self.operator("uid").uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Set the operator id itself, 32 hexadecimal digits, as a savepoint shows it."""
        self.operator("set_uid_hash").uid_hash = uid_hash
        return self

    def set_description(self, description: str) -> Self:
        """Set a longer text for plans."""
        self.operator("set_description").description = description
        return self

    def rate_limit(
        self, *, rows_per_second: float | None = None, bytes_per_second: float | None = None
    ) -> Self:
        """Set the most rows and bytes a second that a source reads, or a sink writes, in all subtasks together.

        Call it on the stream of `from_source`, or on what `sink_to` returns. REST changes the limit of a running job.
        Bytes are those of raw records. Raises ValueError for a number that is not above 0. Raises InvalidProgramError
        for other operators, and for a limit in bytes where the connector does not count them.
        """
        operator = self.operator("rate_limit")
        limit = checked_limit(rows_per_second, bytes_per_second)
        if not operator.spec.takes_rate_limit:
            raise InvalidProgramError(
                f"rate_limit: operator {operator.name!r} is no Source and no Sink; call it on the stream of"
                " from_source(), or behind sink_to()"
            )
        if limit.bytes_per_second is not None and not operator.spec.counts_bytes:
            raise InvalidProgramError(
                f"rate_limit: the connector of operator {operator.name!r} does not count the bytes of records;"
                " limit rows_per_second"
            )
        operator.spec = replace(operator.spec, limit=limit)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks. Raises InvalidProgramError where the operator runs with one only."""
        operator = self.operator("set_parallelism")
        if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
            raise ValueError(f"parallelism must be a whole number of at least 1, not {parallelism!r}")
        if operator.non_parallel and parallelism != 1:
            raise InvalidProgramError(
                f"Operator {operator.name!r} can only run with parallelism 1, not {parallelism}:"
                " rebalance() behind it spreads its records."
            )
        operator.parallelism = parallelism
        operator.parallelism_like = None
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups: the most subtasks it can be rescaled to."""
        operator = self.operator("set_max_parallelism")
        if not isinstance(max_parallelism, int) or not 1 <= max_parallelism <= MAX_MAX_PARALLELISM:
            raise ValueError(f"max parallelism must be 1 to {MAX_MAX_PARALLELISM}, not {max_parallelism!r}")
        operator.max_parallelism = max_parallelism
        return self

    def force_non_parallel(self) -> Self:
        """Let the operator run with parallelism 1, now and ever."""
        operator = self.operator("force_non_parallel")
        operator.parallelism = 1
        operator.parallelism_like = None
        operator.max_parallelism = 1
        operator.non_parallel = True
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Set after how many ms a batch is sent that is not full: -1 is never, 0 at once."""
        if not isinstance(timeout_millis, int) or timeout_millis < -1:
            raise ValueError(f"buffer timeout must be -1 or more milliseconds, not {timeout_millis!r}")
        self.operator("set_buffer_timeout").buffer_timeout_ms = timeout_millis
        return self

    def set_max_input_drift(self, max_drift: Duration | Time | timedelta) -> Self:
        """Bound by how much event time one input stream may be ahead of another: the one ahead is not read meanwhile.

        For operators that read two streams, or a union: connected functions, joins, co-groups. It keeps the state small
        in which rows of one stream wait for the other. Streams that are idle or have ended do not count. Not in Flink.

        Raises InvalidProgramError for an operator with one input stream, and for a stream without event time. It is
        raised for two streams of one source too: the source could not go on while one of them waits. Raises ValueError
        for a negative drift.
        """
        operator = self.operator("set_max_input_drift")
        drift = milliseconds_of(max_drift, "max_drift")
        if drift < 0:
            raise ValueError(f"max_drift must not be negative: {drift} ms")
        check_input_drift(operator)
        operator.max_input_drift_ms = drift
        return self

    def on_error(
        self,
        policy: str | ErrorPolicy,
        max_per_minute: int | None = None,
        max_share: float | None = None,
    ) -> Self:
        """Set what the operator does with a record at which it fails: "fail", "skip" or "dead_letter".

        "skip" leaves the record out and counts it. "dead_letter" does so too, and `dead_letters()` gives the stream of
        what was left out. Results of the record that the function has given before it fails never leave. State that
        the function has changed stays changed. Each subtask fails past `max_per_minute` records within a minute, and
        past `max_share` of its latest records.

        Raises InvalidProgramError, with the reason, for an operator that cannot leave out a record. Raises ValueError
        for an unknown policy and for a bound that nothing can be below. Not in Flink.
        """
        operator = self.operator("on_error")
        handling = error_handling(policy, max_per_minute, max_share)
        if handling.policy is not ErrorPolicy.FAIL and not operator.spec.leaves_out:
            raise InvalidProgramError(
                f"on_error({handling.policy.value!r}) is refused for operator {operator.name!r}:"
                f" {operator.spec.why_none_left_out}."
            )
        operator.errors = handling
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Set the group of operators with which this one shares slots; operators behind it inherit it."""
        self.operator("slot_sharing_group").slot_sharing_group = group_name(slot_sharing_group)
        return self

    def start_new_chain(self) -> Self:
        """Keep the operator out of the chain before it."""
        self.operator("start_new_chain").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self) -> Self:
        """Let the operator be a task of its own."""
        self.operator("disable_chaining").chaining = ChainingStrategy.NEVER
        return self
