"""CollectedRows: the messages of one collect operator put together again, each row once and none too early.

Owner: the thread that iterates. Where rows are to come exactly once they are kept until a checkpoint covers them, as
many as come between two checkpoints. Those of an attempt that failed are dropped. Must not fetch by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import COLLECT_START, CollectPosition, CollectRows
from yarrow.runtime.security.result_proof import ResultProof

Load = Callable[[bytes], list[Any]]

#: Of a stream without a name: nobody gives it up.
_UNKNOWN = -2


class _Stream:
    """What is known of one stream of rows."""

    def __init__(self, name: str) -> None:
        #: The checkpoint with which it began, which does not know of it: its name begins so.
        self.born = int(name.rpartition("-")[0]) if name else _UNKNOWN
        #: Who wrote it last.
        self.attempt: ExecutionAttemptID | None = None
        #: Those before: what comes late of them is void.
        self.former: set[ExecutionAttemptID] = set()
        #: Attempts that have written what came, and from which position on.
        self.writers: dict[str, int] = {}
        #: Position behind the last row that came.
        self.end = 0
        #: The last rows before `end`, which no checkpoint covers yet.
        self.kept: list[Any] = []
        #: The beginning of a row that is longer than a message.
        self.parts: list[bytes] = []

    def give_up(self) -> None:
        """Nobody goes on with what has come; another attempt may begin it once more."""
        self.kept.clear()
        self.end = 0
        if self.attempt is not None:
            self.former.add(self.attempt)

    def begin(self, message: CollectRows) -> list[Any]:
        """Another attempt goes on with the stream: its first message. The rows that are confirmed by that."""
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

        An attempt of which nothing has come may have written them.
        """
        others = [begin for begin, attempt in message.writers if attempt not in self.writers]
        going_on = {attempt for _, attempt in message.writers}
        if going_on and self.writers and next(reversed(self.writers)) not in going_on:
            # Nobody has gone on with what the last one wrote.
            others.append(self.writers[next(reversed(self.writers))])
        return min([message.restored, *others])

    def _void(self, position: int) -> None:
        """The rows from there on do not count."""
        if self.end > position:
            kept_from = self.end - len(self.kept)
            del self.kept[max(0, position - kept_from) :]
            self.end = position

    def add(self, message: CollectRows, load: Load) -> list[Any]:
        """The rows of a message that had not come before."""
        if not message.continued and not message.row_count:
            return []
        self.parts.append(message.payload)
        if message.continued:
            return []
        rows = load(b"".join(self.parts))
        self.parts.clear()
        # Those of the attempt's state are the same rows, also where the ones behind it may come twice.
        known = max(0, self.end - message.first) if message.stream else 0
        self.end = message.first + len(rows) if known < len(rows) else self.end
        return rows[known:]

    def confirm(self, position: int) -> list[Any]:
        """Rows before the position are covered by a checkpoint: those of them that were kept."""
        count = position - (self.end - len(self.kept))
        if count <= 0:
            return []
        covered, self.kept = self.kept[:count], self.kept[count:]
        return covered


class CollectedResults:
    """The rows of all collect operators of one job."""

    def __init__(self, graph: JobGraph, proof: ResultProof) -> None:
        """`graph` is the client's own: what type rows have is not asked of who sends them."""
        self._graph = graph
        self._proof = proof
        self._rows: dict[str, CollectedRows] = {}

    def of(self, collect_id: str) -> CollectedRows:
        """Those of the operator behind one iterator."""
        rows = self._rows.get(collect_id)
        if rows is None:
            rows = self._rows[collect_id] = CollectedRows(self._reader(collect_id))
        return rows

    def _reader(self, collect_id: str) -> Load:
        # It loads numpy, which a client without results does without.
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
        """`load`: the rows of a payload."""
        self._load = load
        self._streams: dict[tuple[int, str], _Stream] = {}
        #: The last message that came: what follows it is to be asked for.
        self.position = COLLECT_START

    def take(self, messages: Iterable[CollectRows]) -> list[Any] | None:
        """The rows that may be handed out now, in the order of their subtasks; None when no more will come."""
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
        """Whether it came before: an answer that was lost on its way is given again. Notes that it has, now."""
        if not message.version:
            return False
        former = self.position
        if message.version == former.version and message.delivery <= former.delivery:
            return True
        self.position = CollectPosition(version=message.version, delivery=message.delivery)
        return False

    def _begin_anew(self, checkpoint_id: int) -> tuple[()]:
        """All tasks begin from that checkpoint: a stream that began with it or later is not in it, and void.

        So it is with what a rescale has begun that is taken back, or that another master does not know. Others go on,
        or have ended before the checkpoint, which covers them then.
        """
        for stream in self._streams.values():
            if stream.born >= checkpoint_id:
                stream.give_up()
        return ()

    def _take(self, message: CollectRows) -> list[Any]:
        # Streams are named by the operator; where they are not, a subtask has one.
        name = (-1, message.stream) if message.stream else (message.subtask, "")
        stream = self._streams.setdefault(name, _Stream(message.stream))
        if message.attempt_id in stream.former:
            return []
        rows = stream.begin(message) if message.attempt_id != stream.attempt else []
        came = stream.add(message, self._load)
        if not message.exactly_once:
            return [*rows, *came]
        stream.kept += came
        return [*rows, *stream.confirm(message.confirmed)]

    def _rest(self, complete: bool) -> list[Any]:
        """The job has ended: what is still kept counts if it has finished."""
        rows: list[Any] = []
        for stream in self._streams.values():
            rows += stream.kept if complete else ()
            stream.kept = []
        return rows
