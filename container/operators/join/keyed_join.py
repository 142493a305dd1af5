"""KeyedJoiningOperator: the base of joins of two keyed inputs by a ProcessJoinFunction.

Owner: the task thread. It has what all of them share: keys, the function, late rows, event time as state. It must not
know which rows meet. See docs/design/0033-joins.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import Emit, OperatorContext, declared_type
from yarrow.container.operators.event_time import refuse_untimed
from yarrow.container.operators.held_back_time import HeldBackTimeOperator
from yarrow.container.operators.join.growth_warning import GrowthWarning
from yarrow.container.operators.join.join_sizes import JoinSizes
from yarrow.container.operators.join.pair_calls import PairCalls, ProcessPair
from yarrow.container.operators.join.pair_code import generate_emitted
from yarrow.container.operators.join.side_size import SideSize
from yarrow.container.operators.late_ledger import LateLedger, LateTime
from yarrow.container.operators.rows.key_selection import KeyReader, generate_key
from yarrow.container.operators.rows.row_functions import FunctionOperator
from yarrow.container.operators.stored_watermark import StoredTimeOperator
from yarrow.container.state.timers import OperatorTimerService
from yarrow.datastream.connectors.dead_letters import PAIR_OF_INPUTS, LeftOutPair
from yarrow.datastream.output_tag import OutputTag
from yarrow.runtime.common.late_records import LatePlace, LateRemedy
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.immutability import copier_for, freeze_or_copy
from yarrow.runtime.graph.join_spec import KeyedJoinOperator

if TYPE_CHECKING:
    from yarrow.container.operators.failed_records import FailedRecords


class KeyedJoiningOperator(HeldBackTimeOperator, StoredTimeOperator, FunctionOperator):
    """Base of the joins of two keyed inputs."""

    emits_tagged = True
    emits_state = True
    stamps_rows = True
    #: True if a row at the watermark is late; False = only one below it is.
    late_at_watermark: ClassVar[bool] = False

    #: The sizes of both sides; None = the join does not count its rows.
    sizes: JoinSizes | None = None

    def __init__(self, name: str, spec: KeyedJoinOperator) -> None:
        super().__init__(name, spec.function, keyed=True)
        self._joined = spec
        self._ledger = LateLedger(name, LateRemedy.MORE_DISORDER)
        #: Warns when the kept rows grow; None = the join does not count its rows.
        self._growth: GrowthWarning | None = None

    # ------------------------------------------------------------------ life

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        spec, environment, state = self._joined, context.environment, context.state
        self._selectors = [
            method_of(load_function(blob, self.name), "get_key", self.name) for blob in spec.key_selectors
        ]
        self.pairs = PairCalls(self._process(), self.name, lambda: state.current_key)
        self._late_tags = [None if tag is None else OutputTag(tag) for tag in spec.late_tags]
        types = [declared_type(each) for each in spec.row_types]
        #: Of each side: copies a row that could change; None = no row can.
        self._fixes = [None if environment.object_reuse else copier_for(each) for each in types]
        self.keep_time(context, self._make_timers(context))
        self._ledger.register(context.environment.metrics, context.metric_group)

    def _process(self) -> ProcessPair:
        """The function that the join calls for a pair of rows."""
        process: ProcessPair = method_of(self.function, "process_element", self.name)
        if self.failed is None:
            return process
        # Most processes leave out no pairs.
        from yarrow.container.operators.join.guarded_pairs import GuardedPairs

        # The declared type tells nothing of values for side outputs.
        copier = None if self.context.environment.object_reuse else freeze_or_copy
        self.failed.keyed_by(self._key_of_pair)
        return GuardedPairs(process, self.failed, copier).process

    def _key_of_pair(self, pair: tuple[Any, ...]) -> Any:
        """The key of a pair of rows, None = there is no partner."""
        left, right = self._selectors
        return right(pair[1]) if pair[0] is None else left(pair[0])

    def leave_out_by(self, failed: FailedRecords) -> None:
        # The loop takes rows, and a pair of them fails.
        failed.inputs = ()
        failed.take_also(PAIR_OF_INPUTS, declared_type(self._joined.pair_type))
        super().leave_out_by(failed)

    def _make_timers(self, context: OperatorContext) -> OperatorTimerService:
        # Without timers of its own it has a service for its time: whoever runs one key at a time moves that.
        return OperatorTimerService(context.environment.clock, self.name, None)

    def count_rows(self, context: OperatorContext, span: int) -> tuple[SideSize, SideSize]:
        """Begins to count the kept rows of both sides, by spans of so many milliseconds."""
        self.sizes = JoinSizes(context, span)
        self._growth = GrowthWarning(context)
        return self.sizes.left, self.sizes.right

    def finish(self) -> None:
        super().finish()
        if self._growth is not None:
            self._growth.end()

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        if self.sizes is not None:
            self.sizes.store()

    def seconds_until_upkeep(self) -> float | None:
        return None if self._growth is None else self._growth.seconds_until_look()

    def upkeep(self) -> None:
        if self._growth is not None and self.sizes is not None:
            left, right = self.sizes.left.entries, self.sizes.right.entries
            self._growth.look(self._timers.watermark, self.time_holder(), left, right)

    # ------------------------------------------------------------------ rows

    def key_reader(self, index: int) -> KeyReader:
        """Who may take the keys of a chunk of input `index` in advance."""
        return self.context.state

    @property
    def takes_keys_ahead(self) -> bool:
        return any(self.key_reader(index).wants_keys for index in range(len(self._selectors)))

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        if index == PAIR_OF_INPUTS:
            self._generate_pair(code, value, timestamp, emit)
            return
        key = generate_key(code, self._selectors[index], value, self.key_reader(index))
        if self.needs_key(code):
            self.generate_key_set(code, key)
        self.generate_row(code, index, (key, value, timestamp), emit)

    def _generate_pair(self, code: CodeWriter, pair: str, timestamp: str | None, emit: Emit) -> None:
        """Generates code that joins a pair which comes again."""
        generate_emitted(code, f"{code.bind('on_pair', self.on_pair)}({pair}, {timestamp})", emit)

    def on_pair(self, pair: LeftOutPair, timestamp: int | None) -> Iterator[tuple[Any, int | None]]:
        """Joins a pair that was left out: its rows are, or were, in the join, and nothing else may meet them again."""
        self.context.state.current_key = self._key_of_pair(pair)
        return self.pairs.at(timestamp, pair.left, pair.left_time, pair.right, pair.right_time)

    def generate_key_set(self, code: CodeWriter, key: str) -> None:
        """Generates code that makes the key in a variable the current one."""
        code.line(f"{code.bind('state', self.context.state)}.current_key = {key}")

    def needs_key(self, code: CodeWriter) -> bool:
        """True if each row must set the current key. Otherwise the code of rare cases sets it."""
        return True

    @abstractmethod
    def generate_row(
        self, code: CodeWriter, index: int, row: tuple[str, str, str | None], emit: Emit
    ) -> None:
        """Generates code that takes a row of input `index` and emits its results.

        `row`: the variables of key, row and timestamp. The last one is None where rows have no timestamps.
        """

    def checked_time(self, row: Any, timestamp: int | None) -> int:
        """The timestamp of a row of the current key. Raises OperatorFailure if it has none."""
        if timestamp is None:
            refuse_untimed(row, self.name, self.context.state.current_key)
        return timestamp

    @property
    def late_dropped(self) -> int:
        """Late rows that went nowhere."""
        return self._ledger.dropped

    def late(self, index: int, row: Any, timestamp: int) -> Iterable[tuple[Any, int | None]]:
        """What becomes of a late row: it goes to the side output of its side, or is counted."""
        tag, watermark = self._late_tags[index], self._timers.watermark
        place = LatePlace.DROPPED if tag is None else LatePlace.SIDE_OUTPUT
        time = LateTime(timestamp, watermark, watermark - timestamp + self.late_at_watermark)
        self._ledger.late(place, self.context.state.current_key, time)
        if tag is None:
            return ()
        return (((tag, row), timestamp),)

    def fixed(self, index: int, row: Any) -> Any:
        """A row that nobody else changes."""
        fix = self._fixes[index]
        return row if fix is None else fix(row)

    # ------------------------------------------------------------------ time

    def end_keys(self) -> Iterator[tuple[Any, int | None]]:
        self._timers.watermark = MAX_TIMESTAMP
        yield from self.end_rows()
        self._timers.watermark = MIN_TIMESTAMP
        if self.sizes is not None:
            # Whoever ends the keys empties their state.
            self.sizes.clear()

    @abstractmethod
    def end_rows(self) -> Iterator[tuple[Any, int | None]]:
        """Results of all rows that wait, because no further row of their keys comes. The state may keep others."""
