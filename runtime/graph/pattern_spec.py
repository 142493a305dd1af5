"""The specs of patterns, of streams of rows and of columns, and of matches that are replayed.

Owner: none; immutable. An operator of `yarrow.container.operators.cep`, `columnar_pattern`, `guarded_pattern` or
`guarded_columnar_pattern` runs each.
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.graph.operator_spec import KeyColumns, OperatorSpec, TypeSpec


class PatternSpec(OperatorSpec, frozen=True, kw_only=True):
    """The fields of all specs of operators that look for a pattern."""

    # The list has watermarks. That of an ended subtask is the greatest, which holds nothing back.
    ended_subtasks_leave_no_unions = True
    keeps_state_as = "a pattern"

    #: The pickled Pattern.
    pattern: bytes
    #: The pickled PatternProcessFunction.
    function: bytes
    #: Side output of late rows; None = they are dropped and counted.
    late_tag: str | None = None
    #: Most partial matches of a key; None = any number.
    max_partial_matches: int | None = None

    def for_matches_of_letters(self, uid: str, row_type: TypeSpec) -> OperatorSpec | None:
        return ReplayedMatchesOperator(
            function=self.function, event_time=self.in_event_time, row_type=row_type, uid_of_letters=uid
        )

    @property
    def in_event_time(self) -> bool:
        """False = rows come by the machine's clock, and matches bear no timestamp."""
        return True


class PatternOperator(PatternSpec, frozen=True, kw_only=True, tag="pattern"):
    """Looks for a pattern among the rows of each key, in order of time."""

    operator_package = "cep"
    on_error_inputs = (0,)

    key_selector: bytes
    #: Type of rows; None = not declared.
    row_type: TypeSpec = None
    #: The pickled comparator of rows with one time; None = they come as they came.
    comparator: bytes | None = None
    #: False = rows come by the machine's clock.
    event_time: bool = True

    @property
    def in_event_time(self) -> bool:
        return self.event_time

    @property
    def selector_of_each_input(self) -> tuple[bytes | None, ...]:
        """The key selector of the only input."""
        return (self.key_selector,)

    @property
    def for_left_out_records(self) -> OperatorSpec:
        """The pattern whose matcher takes each row in the general way."""
        return GuardedPatternOperator(**msgspec.structs.asdict(self))


class AllPatternOperator(PatternOperator, frozen=True, kw_only=True, tag="pattern_all"):
    """Looks for a pattern in a whole stream, in one subtask: all rows have the same key."""

    rescalable = False

    @property
    def for_left_out_records(self) -> OperatorSpec:
        """As of PatternOperator."""
        return GuardedAllPatternOperator(**msgspec.structs.asdict(self))


class GuardedPatternOperator(PatternOperator, frozen=True, kw_only=True, tag="guarded_pattern"):
    """A pattern that leaves out rows and matches at which the program fails; made on workers alone."""

    operator_package = "guarded_pattern"


class GuardedAllPatternOperator(AllPatternOperator, frozen=True, kw_only=True, tag="guarded_pattern_all"):
    """The same in a whole stream."""

    operator_package = "guarded_pattern"


class ColumnarPatternOperator(PatternSpec, frozen=True, kw_only=True, tag="columnar_pattern"):
    """Looks for a pattern among the rows of record batches, key by key and in order of event time; results are rows."""

    operator_package = "columnar_pattern"
    keeps_state_as = "a pattern of columns"
    on_error_inputs = (0,)

    key_column: KeyColumns
    #: IPC bytes of the schema of the batches.
    schema: bytes

    @property
    def columnar_side_outputs(self) -> tuple[str, ...]:
        """The tag of late rows."""
        return () if self.late_tag is None else (self.late_tag,)

    @property
    def for_left_out_records(self) -> OperatorSpec:
        """The pattern that divides a batch at which a condition fails."""
        return GuardedColumnarPatternOperator(**msgspec.structs.asdict(self))


class GuardedColumnarPatternOperator(
    ColumnarPatternOperator, frozen=True, kw_only=True, tag="guarded_columnar_pattern"
):
    """A pattern of columns that leaves out rows and matches at which the program fails; made on workers alone."""

    operator_package = "guarded_columnar_pattern"


class ReplayedMatchesOperator(OperatorSpec, frozen=True, kw_only=True, tag="replayed_matches"):
    """Gives matches of dead letters to the function of a pattern, past the pattern; only a replay has it."""

    operator_package = "guarded_pattern"
    on_error_inputs = (0,)

    #: The pickled PatternProcessFunction.
    function: bytes
    #: The pattern is one in event time: results have timestamps.
    event_time: bool
    #: The type of the rows of matches; None = not declared.
    row_type: TypeSpec
    #: The uid of the pattern.
    uid_of_letters: str

    @property
    def letters_uid(self) -> str:
        """That of the pattern: a match whose function fails again leaves as a letter of the pattern."""
        return self.uid_of_letters
