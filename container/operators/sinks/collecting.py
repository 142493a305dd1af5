"""CollectingOperator: the end of a chain whose rows go to the client of execute_and_collect.

Owner: the task thread. Rows are counted in streams. A stream's position and the unconfirmed rows are operator
state. So rows that are sent again after a restart, also under another master, are recognised by their
positions. The client hears which rows a checkpoint covers. With exactly-once it returns no others. With
checkpoints, the operator does not end before the client has its rows, unless the whole job waits only for
that. It must not know who passes rows on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Self, cast

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.freezing import generate_fixed
from yarrow.container.operators.base import CollectMessage, Emit, input_type_of
from yarrow.container.operators.bulk_row_operator import BulkRowOperator
from yarrow.container.operators.columnar_operator import ColumnarOperator
from yarrow.container.operators.registry import runs
from yarrow.container.operators.sinks.collecting_streams import STREAMS, CollectStream
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.config.options import checkpointing
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import TypeSpec
from yarrow.runtime.snapshot.handles import OperatorStateMode
from yarrow.runtime.snapshot.result_rows import ResultStream, ResultWriter

#: Most rows and bytes of a message; a single larger row is sent alone.
COLLECT_ROWS = 1000
COLLECT_BYTES = 1 << 20
#: Replaces the sequence number in the message that asks when the subtask may end.
AWAITS = -1
#: Checkpoints whose end is awaited; earlier ones will not be reported any more.
_REMEMBERED = 64


@runs(CollectOperator)
class CollectingOperator(BulkRowOperator, ColumnarOperator):
    """Sends rows to the client, one message at a time: the answer is the credit for the next.

    Rows stay here until an answer says that the client has confirmed them. The rows on their way through the
    master are bounded there, because an answer waits for room.
    """

    keeps_state_behind_end = True
    engine_lists: ClassVar[Mapping[str, OperatorStateMode]] = {STREAMS: OperatorStateMode.SPLIT}

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> Self:
        return cls(descriptor.name, cast(CollectOperator, descriptor.spec), input_type_of(descriptor))

    def __init__(self, name: str, spec: CollectOperator, type_spec: TypeSpec = None) -> None:
        """`type_spec` is the declared type of the rows."""
        super().__init__(name)
        self._type_spec = type_spec
        self._collect_id = spec.collect_id
        self._limit = spec.max_buffered_rows
        self._rows_per_message = COLLECT_ROWS
        #: Mean row size of the last message.
        self._bytes_per_row = 0
        #: Rest of a payload that is longer than one message.
        self._parts: deque[bytes] = deque()
        #: The stream of the present message, and the number of its first rows in the message.
        self._under_way: CollectStream
        self._rows_under_way = 0
        self._sequence = 0
        self._in_flight = False
        self._finishing = False
        self._last_sent = False
        #: Positions at the cuts of checkpoints, oldest first.
        self._cuts: dict[int, list[tuple[CollectStream, int]]] = {}
        #: The input had ended before the restored checkpoint.
        self._resumed = False
        #: The savepoint at which all tasks are suspended, and its kind.
        self._standing: tuple[int, SnapshotKind] | None = None
        #: Whether the master was asked when this subtask may end, and has answered that it may.
        self._asked = self._let_go = False

    # ------------------------------------------------------------------ life cycle

    def open(self) -> None:
        self._state = self.context.operator_state.list_state(ListStateDescriptor(STREAMS))
        environment = self.context.environment
        # Without checkpoints after its end, none could hold less than the client still has to get.
        self._awaits_client = environment.settings.get(
            checkpointing.INTERVAL
        ) is not None and environment.settings.get(checkpointing.AFTER_TASKS_FINISH)
        rows = ResultStream(environment.job_id, self._collect_id, self._type_spec)
        self._writer = ResultWriter(rows, environment.result_key)
        attempt = environment.attempt_id
        self._streams = [
            CollectStream.restored_from(element, attempt, self._collect_id) for element in self._state.get()
        ]
        if not self._streams:
            restored = self.context.restored_checkpoint_id
            name = f"{-1 if restored is None else restored}-{environment.subtask}"
            self._streams.append(CollectStream(name, attempt))
            self._streams[0].told = 0
        #: The stream of this attempt.
        self._own = self._streams[0]
        self._under_way = self._own
        self._send()

    def resume_finished(self) -> None:
        # The client may not have had the last rows when the input ended.
        self._resumed = True
        self.open()
        self.finish()

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        fixed = generate_fixed(code, value, None, self.context.environment.object_reuse, gives_away=True)
        super().generate(code, fixed, timestamp, emit)

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        self._own.rows += rows
        self._own.end += len(rows)
        self._send()

    def process_batch(self, batch: ArrowBatch) -> tuple[()]:
        self._own.append(batch.batch)
        self._send()
        return ()

    # ------------------------------------------------------------------ checkpoints

    def stand_still(self, checkpoint_id: int, kind: SnapshotKind) -> None:
        self._standing = (checkpoint_id, kind)
        if not self._holds_back:
            return
        if self._sequence == 0 and not self._in_flight:
            # The client must hear of this attempt before the end: unconfirmed rows of a former one are void.
            self._own.told = -1
        for stream in self._streams:
            taken = stream.sent + (self._rows_under_way if stream is self._under_way else 0)
            # The client may have some of the restored rows from a former attempt.
            stream.held_from = taken if kind is SnapshotKind.RESCALE else max(taken, stream.restored)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._state.update(
            [
                stream.element(self._collect_id, self._others_from(stream, checkpoint_id))
                for stream in self._streams
            ]
        )
        self._cuts[checkpoint_id] = [(stream, stream.end) for stream in self._streams]
        while len(self._cuts) > _REMEMBERED:
            del self._cuts[next(iter(self._cuts))]

    def _others_from(self, stream: CollectStream, checkpoint_id: int) -> int:
        """Position behind the last row for the present client when the job ends with this savepoint.

        They stay in the savepoint, because this job continues from it if a task fails before the end. A
        client of another job that begins from it gets only what follows.
        """
        if self._standing is None or self._standing[0] != checkpoint_id:
            return stream.first
        if self._standing[1] is SnapshotKind.RESCALE:
            return stream.first
        return stream.end if stream.held_from is None else stream.held_from

    @property
    def _holds_back(self) -> bool:
        """True after the cut of a savepoint with which all tasks end: unsent rows belong to the next job.

        Not if the last rows are there: they belong to the client that has all rows before them.
        """
        if self._standing is None or self._resumed:
            return False
        return self._standing[1] is not SnapshotKind.SAVEPOINT_TERMINATE

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for covered in [each for each in self._cuts if each <= checkpoint_id]:
            for stream, end in self._cuts.pop(covered):
                stream.confirmed = max(stream.confirmed, end)
        self._send()

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._cuts.pop(checkpoint_id, None)
        if self._standing is not None and self._standing[0] == checkpoint_id:
            self._standing = None
            for stream in self._streams:
                stream.held_from = None
            self._send()

    # ------------------------------------------------------------------ messages

    def _send(self) -> None:
        if self._in_flight:
            return
        if not self._parts:
            stream = self._next_stream()
            if stream is None:
                return
            rows, payload = self._next_message(stream) if stream.unsent else ([], b"")
            cuts = range(0, max(1, len(payload)), 2 * COLLECT_BYTES)
            self._parts += [payload[cut : cut + 2 * COLLECT_BYTES] for cut in cuts]
            self._under_way, self._rows_under_way = stream, len(rows)
        stream = self._under_way
        part = self._parts.popleft()
        continued = bool(self._parts)
        stream.told = stream.confirmed
        self._in_flight = True
        is_last = not continued and not self._holds_back and self._unsent == self._rows_under_way
        self._last_sent = self._finishing and is_last
        message = self._message(stream, self._sequence, part)._replace(
            row_count=0 if continued else self._rows_under_way, last=self._last_sent, continued=continued
        )
        self.context.environment.push_collected(message)

    def _message(self, stream: CollectStream, sequence: int, payload: bytes = b"") -> CollectMessage:
        return CollectMessage(
            collect_id=self._collect_id,
            sequence=sequence,
            payload=payload,
            row_count=0,
            last=False,
            continued=False,
            stream=stream.name,
            first=stream.sent,
            restored=stream.restored,
            confirmed=stream.confirmed,
            writers=stream.writers,
        )

    def _next_stream(self) -> CollectStream | None:
        """The stream of which the client must hear next; None = none."""
        for stream in (*self._streams[1:], self._own):
            if stream.unsent or stream.told < stream.confirmed:
                return stream
        return self._own if self._finishing and not self._last_sent and not self._holds_back else None

    def _next_message(self, stream: CollectStream) -> tuple[list[Any], bytes]:
        """The next rows and their encoded form; fewer if they are large, because messages have a size limit."""
        count = self._rows_per_message
        begin = stream.sent - stream.first
        while True:
            rows = stream.rows[begin : begin + min(count, stream.unsent)]
            payload = self._writer.dump(rows)
            if len(payload) <= COLLECT_BYTES or len(rows) <= 1:
                self._rows_per_message = min(COLLECT_ROWS, 2 * count)
                self._bytes_per_row = len(payload) // len(rows)
                return rows, payload
            count = max(1, count * COLLECT_BYTES // (2 * len(payload)))

    def on_credit(self, sequence: int, confirmed: Mapping[str, int]) -> None:
        """Takes the answer to a message: the client has the rows before these positions of streams."""
        if sequence == AWAITS:
            self._let_go = True
        elif sequence == self._sequence and self._in_flight:
            self._sequence += 1
            self._in_flight = False
            if not self._parts:
                self._under_way.sent += self._rows_under_way
                self._rows_under_way = 0
            for stream in self._streams:
                stream.let_go(confirmed.get(stream.name, 0))
            self._send()

    @property
    def collect_id(self) -> str:
        """The id of the client's iterator."""
        return self._collect_id

    @property
    def _unsent(self) -> int:
        return sum(stream.unsent for stream in self._streams)

    @property
    def is_available(self) -> bool:
        unsent = self._own.unsent
        return unsent < self._limit and unsent * self._bytes_per_row < 2 * COLLECT_BYTES

    def finish(self) -> None:
        self._finishing = True
        self._send()

    @property
    def only_awaits_client(self) -> bool:
        """True if only the client delays the end of this subtask: its rows are sent, or stay in a savepoint."""
        return self._holds_back or (self._last_sent and not self._in_flight)

    def await_client(self) -> None:
        """Asks, once, when the subtask may end, because nothing else in the task is awaited."""
        if not self._asked:
            self._asked = True
            self.context.environment.push_collected(self._message(self._own, AWAITS)._replace(awaits=True))

    @property
    def is_drained(self) -> bool:
        if self._in_flight:
            return False
        if self._holds_back:
            return self._next_stream() is None
        if not self._finishing:
            return self._unsent == 0
        return self._last_sent and (self._let_go or not self._awaits_client)
