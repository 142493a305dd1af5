"""CollectedRows: joins the messages of one collect operator, and returns each row once and none too early.

Owner: the thread that iterates. With exactly-once, rows are kept until a checkpoint covers them: as many as
come between two checkpoints. Rows of a failed attempt are dropped. Must not fetch by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import COLLECT_START, CollectPosition, CollectRows
from yarrow.runtime.security.result_proof import ResultProof

Load = Callable[[bytes], list[Any]]

#: The checkpoint of a stream without a name, which is never given up.
_UNKNOWN = -2


class _Stream:
    """The client's knowledge of one stream of rows."""

    def __init__(self, name: str) -> None:
        #: The checkpoint with which the stream began, and which does not contain it: the beginning of its
        #: name.
        self.born = int(name.rpartition("-")[0]) if name else _UNKNOWN
        #: The last writing attempt.
        self.attempt: ExecutionAttemptID | None = None
        #: Former attempts: their late rows are void.
        self.former: set[ExecutionAttemptID] = set()
        #: Attempts that have written the received rows, with their first positions.
        self.writers: dict[str, int] = {}
        #: Position behind the last received row.
        self.end = 0
        #: The last rows before `end`, which no checkpoint covers yet.
        self.kept: list[Any] = []
        #: The beginning of a row that is longer than a message.
        self.parts: list[bytes] = []
        #: An attempt of the present start of all tasks writes it.
        self.is_continued = False

    def all_tasks_start(self, checkpoint_id: int) -> None:
        """Notes that all tasks start from that checkpoint: the stream is void if none of them continues it.

        A stream that began with the checkpoint or later is void at once.
        """
        self.is_continued = False
        if self.born >= checkpoint_id:
            self._give_up()

    def _give_up(self) -> None:
        """Drops the rows, because no attempt continues the stream; another attempt may begin it once more."""
        self.kept.clear()
        self.end = 0
        if self.attempt is not None:
            self.former.add(self.attempt)

    def begin(self, message: CollectRows) -> list[Any]:
        """Takes the first message of another attempt that continues the stream; returns the rows that it confirms."""
        self.parts.clear()
        if self.attempt is None:
            self.end = message.first
        else:
            self.former.add(self.attempt)
        self.attempt = message.attempt_id
        self._void(self._divergence(message))
        self.writers = {attempt: begin for begin, attempt in message.writers}
        return self.confirm(message.restored)

    def _divergence(self, message: CollectRows) -> int:
        """The position behind which the attempt's restored state may hold other rows than those received.

        An attempt without received rows may have written them. The state has no rows before `message.first`:
        this client has confirmed these.
        """
        others = [begin for begin, attempt in message.writers if attempt not in self.writers]
        going_on = {attempt for _, attempt in message.writers}
        if going_on and self.writers and next(reversed(self.writers)) not in going_on:
            # No attempt has continued the last one's rows.
            others.append(self.writers[next(reversed(self.writers))])
        return max(message.first, min([message.restored, *others]))

    def _void(self, position: int) -> None:
        """Drops the rows from that position on."""
        if self.end > position:
            kept_from = self.end - len(self.kept)
            del self.kept[max(0, position - kept_from) :]
            self.end = position

    def add(self, message: CollectRows, load: Load) -> list[Any]:
        """The new rows of a message."""
        if not message.continued and not message.row_count:
            return []
        self.parts.append(message.payload)
        if message.continued:
            return []
        rows = load(b"".join(self.parts))
        self.parts.clear()
        # The rows of the attempt's state are the same, but the ones after it may differ.
        known = max(0, self.end - message.first) if message.stream else 0
        self.end = message.first + len(rows) if known < len(rows) else self.end
        return rows[known:]

    def confirm(self, position: int) -> list[Any]:
        """Returns the kept rows before the position, which a checkpoint covers now."""
        count = position - (self.end - len(self.kept))
        if count <= 0:
            return []
        covered, self.kept = self.kept[:count], self.kept[count:]
        return covered


class CollectedResults:
    """The rows of all collect operators of one job."""

    def __init__(self, graph: JobGraph, proof: ResultProof) -> None:
        """`graph` is the client's own: the type of rows must not come from the sender."""
        self._graph = graph
        self._proof = proof
        self._rows: dict[str, CollectedRows] = {}

    def of(self, collect_id: str) -> CollectedRows:
        """The rows of the operator behind one iterator."""
        rows = self._rows.get(collect_id)
        if rows is None:
            rows = self._rows[collect_id] = CollectedRows(self._reader(collect_id))
        return rows

    def _reader(self, collect_id: str) -> Load:
        # Imported late: it loads numpy, which a client without results does not need.
        from yarrow.runtime.snapshot.result_rows import ResultReader, ResultStream

        types = next(
            operator.input_types
            for vertex in self._graph.vertices
            for operator in vertex.operators
            if operator.spec.collects_for == collect_id
        )
        stream = ResultStream(self._graph.job_id, collect_id, types[0] if types else None)
        return ResultReader(stream, self._proof).load


class CollectedRows:
    """The rows of all subtasks of one collect operator."""

    def __init__(self, load: Load) -> None:
        """`load` decodes the rows of a payload."""
        self._load = load
        self._streams: dict[tuple[int, str], _Stream] = {}
        #: The last received message: the next request asks for its successors.
        self.position = COLLECT_START

    def take(self, messages: Iterable[CollectRows]) -> list[Any] | None:
        """The rows that may be returned now, in the order of their subtasks; None when no more will come."""
        rows: list[Any] = []
        ended = False
        for message in messages:
            if message.last:
                ended = True
                rows += self._rest(message.complete)
            elif not self._has_come(message):
                rows += self._begin_anew(message.restored) if message.subtask < 0 else self._take(message)
        return None if ended and not rows else rows

    def _has_come(self, message: CollectRows) -> bool:
        """Whether the message came before: a lost answer is repeated. Notes the message."""
        if not message.version:
            return False
        former = self.position
        if message.version == former.version and message.delivery <= former.delivery:
            return True
        self.position = CollectPosition(version=message.version, delivery=message.delivery)
        return False

    def _begin_anew(self, checkpoint_id: int) -> tuple[()]:
        """Handles a start of all tasks from that checkpoint, which may void streams.

        It voids streams of a rescale that was taken back, and streams that another master does not know. The
        client may have missed starts in between. So an older stream may be void, too: no attempt continues it.
        """
        for stream in self._streams.values():
            stream.all_tasks_start(checkpoint_id)
        return ()

    def _take(self, message: CollectRows) -> list[Any]:
        # Operators name their streams; without a name, a subtask has one stream.
        name = (-1, message.stream) if message.stream else (message.subtask, "")
        stream = self._streams.setdefault(name, _Stream(message.stream))
        if message.attempt_id in stream.former:
            return []
        stream.is_continued = True
        rows = stream.begin(message) if message.attempt_id != stream.attempt else []
        came = stream.add(message, self._load)
        if not message.exactly_once:
            return [*rows, *came]
        stream.kept += came
        return [*rows, *stream.confirm(message.confirmed)]

    def _rest(self, complete: bool) -> list[Any]:
        """Ends the rows after the job's end: kept rows of streams that are not void count if it has FINISHED.

        If a subtask ended before the last start, its stream has no kept rows. The subtask had waited until
        the client knew that a checkpoint covers all of them.
        """
        rows: list[Any] = []
        for stream in self._streams.values():
            rows += stream.kept if complete and stream.is_continued else ()
            stream.kept = []
        return rows
