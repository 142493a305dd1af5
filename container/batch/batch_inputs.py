"""The inputs of a batch task: chunks and splits, run through the chain step by step.

Owner: the task thread. Broadcast chunks come first, then key groups or inputs one after the other. Each method
that runs rows is an iterator of steps: between two steps the caller takes what the chain has emitted. Must not
know what becomes of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeVar, cast

import pyarrow as pa

from yarrow.container.batch.batch_outputs import BatchOutputs
from yarrow.container.batch.chunk import Chunk, EndTime
from yarrow.container.batch.chunk_channel import decode_batch
from yarrow.container.batch.chunk_order import ChunkOrder
from yarrow.container.batch.folding.partial_rows import PartialRows, PartialRowsCodec, partial_codec
from yarrow.container.batch.history.key_time import KeyTime
from yarrow.container.batch.history_splits import HistorySplits
from yarrow.container.batch.key_group_sizes import most_frequent_key
from yarrow.container.batch.key_order import PIECE_ROWS, KeyedEdge, KeyOrder
from yarrow.container.batch.largest_key_group import OnLargest
from yarrow.container.batch.single_key_state import SingleKeyStateBackend
from yarrow.container.batch.source_chunks import SourceChunks
from yarrow.container.batch.split_assignment import split_events
from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import HistoryTime, declared_type
from yarrow.container.operators.rows.keyed_aggregation import PARTIAL_INPUT
from yarrow.container.operators.sources.source_head import SourceHead
from yarrow.container.task.checkpointing.channel_origins import checking_codec_of
from yarrow.datastream.connectors.base import NothingAvailable, SourceRecords
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.elements import ArrowBatch, Batch, RowBatch, stamps_column
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.graph.batch.batch_plan import BatchStage, ExchangeKind
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import StreamKind

_T = TypeVar("_T")

#: Seconds between two looks at the permits of sinks.
_LOOK_SECONDS: Final = 0.05
#: Least rows for which a source is asked at once, and of a chunk; see SourceReader.poll.
_LEAST_POLL: Final = 256

#: The key of a folded value.
_first: Final = itemgetter(0)


class BatchInputs:
    """Runs the input of one task through its chain."""

    #: Most bytes of rows in memory, whatever the settings say.
    sort_bytes = sys.maxsize

    def __init__(
        self,
        graph: JobGraph,
        stage: BatchStage,
        chain: OperatorChain,
        outputs: BatchOutputs,
        settings: Settings,
        directory: Path,
        on_largest: OnLargest,
        *,
        keeps_state: bool = False,
    ) -> None:
        """`directory`: a folder of this task for rows that do not fit into memory; made on demand.

        `keeps_state`: the input is the history of a stream.

        `on_largest` hears of the key group that has the most records, when the task begins with it.
        """
        self._on_largest = on_largest
        self._keeps_state = keeps_state
        self._key_time: KeyTime | None = None
        self._chain = chain
        self._outputs = outputs
        self._directory = directory
        self._budget = min(settings.get(execution.SORT_MEMORY).bytes, self.sort_bytes)
        self._poll_rows = max(_LEAST_POLL, settings.get(execution.BATCH_MAX_ROWS))
        self._edges = {edge.index: edge for edge in graph.inputs_of(stage.vertex_id)}
        self._codecs = {index: checking_codec_of(graph, edge) for index, edge in self._edges.items()}
        for exchange in stage.inputs:
            if exchange.combining is not None:
                self._codecs[exchange.edge] = partial_codec(graph, self._edges[exchange.edge])
        self._keyed = {exchange.edge for exchange in stage.inputs if exchange.kind is ExchangeKind.KEYED}
        self.order = ChunkOrder(stage, self._budget, directory)
        #: Rows that the chain has taken.
        self.records_in = 0

    def close(self) -> None:
        """Removes files."""
        self.order.close()

    # ------------------------------------------------------------------ splits

    def read_splits(self, splits: tuple[bytes, ...]) -> Iterator[None]:
        """Reads the splits of the source at the head, in order."""
        chain, outputs = self._chain, self._outputs
        source = chain.source
        assert source is not None, "the vertex begins with a source"
        with chain.attributed(0):
            for event in split_events(splits):
                source.handle_event(event)
        declared = declared_type(source.context.descriptor.output_type)
        chunks = SourceChunks(self._poll_rows, copier_for(declared))
        while True:
            outputs.woken.clear()
            try:
                with chain.attributed(0):
                    found = source.poll(self._poll_rows)
            except Exception:
                # What was read before is run before: its errors and prints come first.
                yield from self._run_source(source, chunks.end())
                raise
            if isinstance(found, NothingAvailable):
                yield
                outputs.wait(found.wait_seconds)
                continue
            yield from self._run_source(source, chunks.end() if found is None else chunks.put(found))
            if found is None:
                return

    def read_history(self, splits: tuple[bytes, ...], until: int | None) -> Iterator[None]:
        """Reads the splits of the source at the head up to the end of history; `end_time` is known then."""
        chain = self._chain
        declared = declared_type(chain.head.context.descriptor.output_type)
        found = HistorySplits(
            chain,
            until,
            lambda: SourceChunks(self._poll_rows, copier_for(declared)),
            self._poll_rows,
            self._outputs,
        )
        source = chain.source
        assert source is not None, "the vertex begins with a source"

        yield from found.read(splits, partial(self._run_part, source))
        time = found.time()
        self.order.end_times.append(EndTime(time.watermark, time.lag))

    @property
    def end_time(self) -> HistoryTime:
        """Event time at the end of history, when all input has come."""
        return HistoryTime.least(HistoryTime(*time) for time in self.order.end_times)

    def _run_source(self, source: SourceHead, chunks: Iterator[SourceRecords]) -> Iterator[None]:
        """Runs chunks of a source's rows."""
        chain = self._chain
        for chunk in chunks:
            with chain.attributed(0):
                parts = iter(source.timed(chunk))
            while True:
                with chain.attributed(0):
                    part = next(parts, None)
                if part is None:
                    break
                chain.run_source_side(part.side)
                if len(part.rows):
                    yield from self._run_part(source, part.rows, part.timestamps)
                else:
                    yield from self._flow_on()

    def _run_part(
        self, source: SourceHead, rows: object, stamps: Sequence[int | None] | None
    ) -> Iterator[None]:
        found = rows if isinstance(rows, Sequence) else ArrowBatch(rows, stamps_column(stamps))
        for piece in self._permitted(len(found)):
            if piece is None:
                yield
                continue
            if isinstance(found, ArrowBatch):
                self._chain.run_source_batch(found.sliced(piece.start, piece.stop), self._outputs.is_full)
            else:
                times = None if stamps is None else piece_of(stamps, piece)
                self._chain.run_source_rows(piece_of(found, piece), times)
            size = piece.stop - piece.start
            source.records_in += size
            self.records_in += size
            yield from self._flow_on()

    # ------------------------------------------------------------------ rate limits of sinks

    def _permitted(self, rows: int) -> Iterator[slice | None]:
        """Pieces of so many rows, each when the sinks of the chain may take it; None = the caller looks around."""
        begin = 0
        while begin < rows:
            permitted = self._chain.permitted_rows
            if permitted == 0:
                yield from self._until_permitted()
                continue
            end = rows if permitted is None else min(rows, begin + permitted)
            yield slice(begin, end)
            begin = end

    def _until_permitted(self) -> Iterator[None]:
        """Waits until the rate limits of sinks let the chain take rows."""
        while self._chain.permitted_rows == 0:
            self._outputs.woken.clear()
            yield
            self._outputs.wait(_LOOK_SECONDS)

    @property
    def _piece_rows(self) -> int:
        """Rows and results of keys that the chain takes together."""
        return min(PIECE_ROWS, self._chain.permitted_rows or PIECE_ROWS)

    # ------------------------------------------------------------------ columns

    def run_columns(self, batches: Iterable[pa.RecordBatch]) -> Iterator[None]:
        """Runs what was computed in the place of a source."""
        for batch in batches:
            self.records_in += batch.num_rows
            self._chain.run_batch(0, ArrowBatch(batch), self._outputs.is_full)
            yield from self._flow_on()

    # ------------------------------------------------------------------ chunks

    def run_chunks(self, chunks: Iterable[Chunk]) -> Iterator[None]:
        """Runs all chunks of the task."""
        for group, found in groupby(self.order.ordered(chunks), key=self._key_group):
            if group is None and not self._sorts_all:
                for chunk in found:
                    yield from self._run_batch(chunk)
            elif group is None:
                yield from self._run_by_key(found, timed=True)
            else:
                yield from self._run_group(self._noticed(group, found))

    @property
    def _sorts_all(self) -> bool:
        """Whether rows without keys are sorted by time; in a history, the operator itself lets them wait."""
        return self._chain.head.wants_time_order and not self._keeps_state

    def _noticed(self, group: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """The chunks of a key group; tells of the largest one."""
        if not self.order.key_groups.is_largest(group):
            return chunks
        first = next(chunks)
        edge = self._edges[first.edge]
        self._on_largest(
            self.order.key_groups.largest(
                lambda: most_frequent_key(edge, self._decoded(first), self._key_edges)
            )
        )
        return chain((first,), chunks)

    def _key_group(self, chunk: Chunk) -> int | None:
        return chunk.target if chunk.edge in self._keyed else None

    def _decoded(self, chunk: Chunk) -> Batch:
        return decode_batch(self._codecs[chunk.edge], chunk)

    def _run_batch(self, chunk: Chunk) -> Iterator[None]:
        batch = self._decoded(chunk)
        number = PARTIAL_INPUT if isinstance(batch, PartialRows) else self._edges[chunk.edge].target_input
        in_turn = self._chain.head.takes_inputs_in_turn
        for piece in self._permitted(len(batch)):
            if piece is None:
                yield
                continue
            size = piece.stop - piece.start
            self.records_in += size
            if isinstance(batch, RowBatch):
                self._chain.counts.records_in += size
                stamps = None if in_turn or batch.timestamps is None else piece_of(batch.timestamps, piece)
                self._chain.run_rows(number, piece_of(batch.rows, piece), stamps)
            else:
                self._chain.run_batch(number, batch.sliced(piece.start, piece.stop), self._outputs.is_full)
            yield from self._flow_on()

    def _flow_on(self) -> Iterator[None]:
        """Batches that an operator makes of one batch leave one by one."""
        yield
        while self._chain.flowing:
            self._chain.flow_on(self._outputs.is_full)
            yield

    # ------------------------------------------------------------------ key groups

    def _run_group(self, chunks: Iterator[Chunk]) -> Iterator[None]:
        """Runs the rows of one key group."""
        head = self._chain.head
        timed = any(edge in self.order.timed for edge in self._keyed)
        in_any_order = head.takes_inputs_in_turn or (head.mixes_keys and not timed)
        if head.takes_rows and not in_any_order:
            yield from self._run_by_key(chunks, timed=timed)
            return
        for chunk in chunks:
            yield from self._run_batch(chunk)
        self._end_keys()
        self._chain.end_of_chunk()
        yield

    def _run_by_key(self, chunks: Iterator[Chunk], *, timed: bool) -> Iterator[None]:
        chain = self._chain
        group = KeyOrder(
            self._key_edges,
            self._budget,
            self._directory,
            by_time_alone=chain.head.mixes_keys,
            timed=timed,
        )
        try:
            for chunk in chunks:
                batch = self._decoded(chunk)
                assert isinstance(batch, RowBatch), "the head takes rows"
                group.add(_partial_edge(chunk.edge) if isinstance(batch, PartialRows) else chunk.edge, batch)
            waiting, history = 0, self._history_time()
            yield from self._until_permitted()
            most = self._piece_rows
            for pieces in group.by_key():
                for piece in pieces:
                    number = len(piece.rows)
                    if history is None:
                        chain.run_rows_of_key(piece.input, piece.rows, piece.timestamps)
                    else:
                        waiting += history.run(piece.input, piece.rows, piece.timestamps)
                    chain.counts.records_in += number
                    self.records_in += number
                    waiting += number
                    if waiting >= most:
                        waiting = 0
                        chain.end_of_chunk()
                        yield
                        yield from self._until_permitted()
                        most = self._piece_rows
                waiting += self._end_keys()
            chain.end_of_chunk()
            yield
        finally:
            group.close()

    def _history_time(self) -> KeyTime | None:
        """The time of keys in a stream's history; None = the input is no history."""
        if self._keeps_state and self._key_time is None:
            self._key_time = KeyTime(self._chain, self.end_time)
        return self._key_time

    def end_history(self) -> None:
        """Ends the input of a history: the operators have all timers that the stream has to fire."""
        if self._key_time is not None:
            self._key_time.restore_timers()

    def _end_keys(self) -> int:
        """Ends the keys that have come; returns the number of results."""
        history = self._history_time()
        if history is not None:
            return history.end_keys()
        results = self._chain.end_keys()
        cast(SingleKeyStateBackend, self._chain.head.context.state).empty()
        return results

    @property
    def _key_edges(self) -> dict[int, KeyedEdge]:
        if self._known_key_edges is None:
            self._known_key_edges = {
                index: self._key_edge(index)
                for index in (self._edges if self._sorts_all else self._keyed)
                if self._edges[index].stream_kind is StreamKind.ROW
            }
            self._known_key_edges |= {
                _partial_edge(index): KeyedEdge(PARTIAL_INPUT, _first, edge.codec, edge.operator, PartialRows)
                for index, edge in self._known_key_edges.items()
                if isinstance(edge.codec, PartialRowsCodec)
            }
        return self._known_key_edges

    _known_key_edges: dict[int, KeyedEdge] | None = None

    def _key_edge(self, index: int) -> KeyedEdge:
        edge, name = self._edges[index], self._chain.head.name
        selector = edge.partitioner.key_selector
        key = _no_key if selector is None else method_of(load_function(selector, name), "get_key", name)
        return KeyedEdge(edge.target_input, key, self._codecs[index], name)


def piece_of(rows: Sequence[_T], piece: slice) -> Sequence[_T]:
    """Return a piece of rows or timestamps. A job without limits gets all of them at once, and no copy."""
    return rows if piece.stop - piece.start == len(rows) else rows[piece]


def _no_key(row: object) -> None:
    """The key of rows that are sorted by time alone."""


def _partial_edge(edge: int) -> int:
    """The number under which the folded values of an edge are sorted among its rows."""
    return -1 - edge
