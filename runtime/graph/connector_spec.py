"""Specs of operators that read from outside or write there: sources and sinks. Owner: none (frozen values).

Must not import operators or call user functions, as operator_spec says.
"""

from __future__ import annotations

from typing import Self

import msgspec

from yarrow.common.values.conditions import WantedColumns
from yarrow.common.values.delivery import DeliveryGuarantee, KeptBy, Replay, SinkDelivery
from yarrow.common.values.rate_limit import UNLIMITED, RateLimit
from yarrow.runtime.graph.operator_spec import ColumnScan, OperatorSpec


class LimitedOperator(OperatorSpec, frozen=True, kw_only=True):
    """A source or sink whose subtasks share a rate limit."""

    takes_rate_limit = True

    limit: RateLimit = UNLIMITED
    knows_bytes: bool = False


class SourceOperator(LimitedOperator, frozen=True, kw_only=True, tag="source"):
    """A `Source` (connectors.base) with its enumerator and readers."""

    is_source = True
    keeps_state_as = "a source"
    has_enumerator = True
    # Readers keep their progress in one, and an ended reader has none.
    ended_subtasks_leave_no_unions = True
    on_error_refusal = "its format treats errors: call on_error of the source's builder or of its format"

    source: bytes
    #: Set if timestamps or watermarks are made inside the source.
    watermark_strategy: bytes | None = None
    #: The boundedness of the source is BOUNDED.
    bounded: bool = False
    #: The bounded source of what there is now, behind which an unbounded source goes on; None = there is none.
    history: bytes | None = None
    #: The files of a source that emits their columns.
    scan: ColumnScan | None = None
    #: The source's `can_narrow`.
    can_narrow: bool = False
    #: The columns and rows that operators behind the source need.
    wanted: WantedColumns = WantedColumns()
    #: The source's `replay`.
    declared_replay: Replay = Replay.EXACT_POSITIONS

    @property
    def replay(self) -> Replay:
        return self.declared_replay

    @property
    def reads_by(self) -> tuple[bytes, bytes | None]:
        return self.source, self.watermark_strategy

    @property
    def is_bounded(self) -> bool:
        return self.bounded

    @property
    def as_history(self) -> SourceOperator | None:
        if self.bounded:
            # Rows that the history leaves in the savepoint have all columns: another program may read them.
            return msgspec.structs.replace(self, wanted=WantedColumns())
        if self.history is None:
            return None
        return msgspec.structs.replace(
            self, source=self.history, bounded=True, scan=None, wanted=WantedColumns()
        )

    def narrowed(self, wanted: WantedColumns) -> Self:
        # A watermark strategy sees all rows.
        may_narrow = self.can_narrow and self.watermark_strategy is None
        return msgspec.structs.replace(self, wanted=wanted) if may_narrow else self

    @property
    def scan_note(self) -> str:
        return str(self.wanted)

    @property
    def column_scan(self) -> ColumnScan | None:
        return self.scan


class SourceFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="source_function"):
    """A legacy SourceFunction whose run() blocks, in a thread of its own."""

    is_source = True
    keeps_state_as = "a source"
    # A non-parallel one would emit everything once for each subtask.
    rescalable = False
    opens_outside = True
    on_error_refusal = "a SourceFunction has no record when it fails: catch the error in its run()"

    function: bytes
    #: The function keeps its position in a checkpoint.
    keeps_position: bool = False

    @property
    def replay(self) -> Replay:
        return Replay.EXACT_POSITIONS if self.keeps_position else Replay.NONE


class SinkFunctionOperator(OperatorSpec, frozen=True, kw_only=True, tag="sink_function"):
    """A legacy SinkFunction: invoke(value, context) for each record."""

    is_sink = True
    keeps_state_as = "a sink"
    on_error_inputs = (0,)
    opens_outside = True

    function: bytes

    @property
    def delivery(self) -> SinkDelivery:
        return SinkDelivery(connector="SinkFunction", kept_by={DeliveryGuarantee.AT_LEAST_ONCE: KeptBy.FLUSH})


class SinkWriterOperator(LimitedOperator, frozen=True, kw_only=True, tag="sink_writer"):
    """A `Sink` (connectors.base) with its writer and, if it has one, its committer."""

    is_sink = True
    keeps_state_as = "a sink"
    writes_for_sink = True
    on_error_refusal = (
        "the sink does not tell which row it refuses: encode rows by a map with on_error before it"
    )

    sink: bytes
    #: A bounded job commits this sink behind its others.
    commits_last: bool = False
    #: The sink's declaration; None in a graph of an older client, which sends none.
    declared: SinkDelivery | None = None
    #: The guarantee that the writer keeps; None = what the sink asks for, or the strongest that the sink keeps.
    guarantee: DeliveryGuarantee | None = None
    #: The sink's `tells_refused_rows`.
    tells_rows: bool = False

    @property
    def leaves_out(self) -> tuple[int, ...]:
        return (0,) if self.tells_rows else ()

    @property
    def delivery(self) -> SinkDelivery | None:
        return self.declared

    @property
    def settled_guarantee(self) -> DeliveryGuarantee | None:
        return self.guarantee

    def with_guarantee(self, guarantee: DeliveryGuarantee) -> SinkWriterOperator:
        return msgspec.structs.replace(self, guarantee=guarantee)


class PrintOperator(OperatorSpec, frozen=True, kw_only=True, tag="print"):
    """Writes each record as a line to the TaskExecutor's .out file (and the embedded client's stdout)."""

    is_sink = True
    keeps_state_as = "a sink"

    identifier: str = ""

    @property
    def delivery(self) -> SinkDelivery:
        return SinkDelivery(connector="print", kept_by={DeliveryGuarantee.AT_LEAST_ONCE: KeptBy.FLUSH})


class DiscardOperator(OperatorSpec, frozen=True, kw_only=True, tag="discard"):
    """Stands for a sink whose rows nobody wants: it counts them and drops them."""

    is_sink = True
    keeps_state_as = "a sink"


class CollectOperator(OperatorSpec, frozen=True, kw_only=True, tag="collect"):
    """Sends records to the client of execute_and_collect through the JobMaster, with flow control."""

    is_sink = True
    keeps_state_as = "a sink"

    collect_id: str
    max_buffered_rows: int = 10_000

    @property
    def delivery(self) -> SinkDelivery:
        # The client keeps rows back until a checkpoint covers them.
        kept_by = {DeliveryGuarantee.EXACTLY_ONCE: KeptBy.STAGED_ROWS}
        return SinkDelivery(connector="execute_and_collect", kept_by=kept_by)

    @property
    def collects_for(self) -> str:
        return self.collect_id
