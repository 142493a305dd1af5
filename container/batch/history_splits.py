"""HistorySplits: reads the splits of a source up to the end of history, and says where the stream goes on.

Owner: the task thread. Each split is read by a reader of its own, up to the first record that belongs to the stream.
Records that the reader has given from there on go into the source's state, before the split's position. Must not
know who runs records.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from yarrow.container.batch.batch_outputs import BatchOutputs
from yarrow.container.batch.source_chunks import SourceChunks
from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.operators.base import HistoryTime
from yarrow.container.operators.sources.source_reader import ReadingSource
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.datastream.connectors.base import NothingAvailable, SourceRecords, SourceSplit
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.options import batch
from yarrow.runtime.data.elements import MIN_TIMESTAMP

#: Runs a part of the source's rows, with its timestamps: see BatchInputs.
RunPart = Callable[[Any, Sequence[int | None] | None], Iterator[None]]


class HistoryEndError(YarrowError):
    """The end of history cannot be found in a source: its records bear no time."""


class HistorySplits:
    """The splits of one task."""

    def __init__(
        self,
        chain: OperatorChain,
        until: int | None,
        make_chunks: Callable[[], SourceChunks],
        poll_rows: int,
        outputs: BatchOutputs,
    ) -> None:
        """`until`: epoch ms of the first record of a split that is the stream's; None = all that there is."""
        self._chain = chain
        self._source: Final = cast(ReadingSource, chain.head)
        self._until = until
        self._make_chunks = make_chunks
        self._poll_rows = poll_rows
        self._outputs = outputs
        #: Splits that go on, and the records before their positions.
        self._positions: list[SourceSplit] = []
        self._carried: list[SourceRecords] = []
        #: The greatest time of the split that is read; of those that go on, and of those that have ended. A split in
        #: which the stream begins has come to the end of history.
        self._greatest: int | None = None
        self._going_on: list[int | None] = []
        self._ended: list[int | None] = []

    def read(self, splits: Sequence[bytes], run: RunPart) -> Iterator[None]:
        """Reads all splits in order; between two steps the caller takes what the chain has emitted."""
        for encoded in splits:
            yield from self._read(pickle.loads(encoded), run)
        with self._chain.attributed(0):
            self._source.hand_over(self._positions, self._carried, self.time().watermark)

    def _read(self, split: SourceSplit, run: RunPart) -> Iterator[None]:
        source, self._greatest = self._source, None
        with self._chain.attributed(0):
            source.begin_alone(split)
        chunks, has_come_to_stream, is_over = self._make_chunks(), False, False
        while not is_over:
            self._outputs.woken.clear()
            try:
                with self._chain.attributed(0):
                    found = source.poll(self._poll_rows)
            except Exception:
                # What was read before is run before: its errors and prints come first.
                for chunk in chunks.end():
                    yield from self._run_history(chunk, run)
                raise
            if isinstance(found, NothingAvailable):
                yield
                self._outputs.wait(found.wait_seconds)
                continue
            for chunk in chunks.end() if found is None else chunks.put(found):
                if has_come_to_stream:
                    self._carried.append(chunk)
                else:
                    has_come_to_stream = yield from self._run_history(chunk, run)
            is_over = has_come_to_stream or found is None
        self._carried += chunks.end()
        with self._chain.attributed(0):
            positions = source.positions()
        self._positions += positions
        if has_come_to_stream:
            self._going_on.append(self._until)
        else:
            (self._going_on if positions else self._ended).append(self._greatest)

    def _run_history(self, chunk: SourceRecords, run: RunPart) -> Any:
        """Runs the records of a chunk that belong to history; returns whether the stream begins in it."""
        given, before = chunk.timestamps, 0
        with self._chain.attributed(0):
            parts = self._source.timed(chunk)
        while True:
            with self._chain.attributed(0):
                part = next(parts, None)
                if part is None:
                    return False
                end = self._end_in(part)
            self._chain.run_source_side(part.side)
            rows, stamps = part.rows, part.timestamps
            if end < _length(rows):
                rest = before + end
                self._carried.append(
                    SourceRecords(
                        _from(chunk.rows, rest), None if given is None else given[rest:], chunk.split_id
                    )
                )
                rows, stamps = _to(rows, end), None if stamps is None else stamps[:end]
            if end and stamps is not None:
                self._note(stamps)
            if end:
                yield from run(rows, stamps)
            if end < _length(part.rows):
                return True
            before += end

    def _end_in(self, part: SourceRecords) -> int:
        """The position of the first record that belongs to the stream; the number of records if there is none."""
        until, stamps, count = self._until, part.timestamps, _length(part.rows)
        if until is None or not count:
            return count
        if stamps is None or None in stamps:
            row = part.rows[0 if stamps is None else list(stamps).index(None)]
            error = HistoryEndError(
                f"operator '{self._source.name}': a record has no time, so that the end of history"
                f" ({batch.HISTORY_UNTIL.key}) cannot be found in it. Give from_source a WatermarkStrategy with a"
                f" timestamp assigner, or set {batch.HISTORY_UNTIL.key} to NOW"
            )
            raise OperatorFailure(self._source.name, short_record(row), error)
        if max(cast("Sequence[int]", stamps)) < until:
            return count
        return next(index for index, stamp in enumerate(stamps) if cast(int, stamp) >= until)

    def _note(self, stamps: Sequence[int | None]) -> None:
        times = [stamp for stamp in stamps if stamp is not None]
        if times and (self._greatest is None or max(times) > self._greatest):
            self._greatest = max(times)

    def time(self) -> HistoryTime:
        """Event time behind the source, when all splits are read."""
        strategy = self._source.strategy()
        delay = None if strategy is None else strategy.max_out_of_orderness_ms
        goes_on = bool(self._positions or self._carried)
        if delay is None:
            goes_on = goes_on or self._source.goes_on
            return HistoryTime(MIN_TIMESTAMP if goes_on else None)
        lag = delay + 1
        if self._until is not None and not self._source.goes_on:
            return HistoryTime(self._until - lag, lag)
        # What is still to come from a source that goes on may be earlier than the given end of history.
        if self._going_on:
            known = [MIN_TIMESTAMP if each is None else each - lag for each in self._going_on]
            return HistoryTime(min(known), lag)
        ended = [each for each in self._ended if each is not None]
        return HistoryTime(max(ended) - lag if ended else None, lag)


def _length(rows: Any) -> int:
    return rows.num_rows if hasattr(rows, "num_rows") else len(rows)


def _from(rows: Any, start: int) -> Any:
    return rows.slice(start) if hasattr(rows, "num_rows") else rows[start:]


def _to(rows: Any, end: int) -> Any:
    return rows.slice(0, end) if hasattr(rows, "num_rows") else rows[:end]
