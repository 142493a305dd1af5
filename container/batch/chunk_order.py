"""ChunkOrder: the chunks of a task's inputs in the one order in which each attempt reads them.

Owner: the task thread. Chunks of several producers come in any order: they are sorted by place, on disk beyond a
budget of memory. Must not look into payloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from yarrow.container.batch.chunk import Chunk, EndTime, decode_chunk, encode_chunk, time_of
from yarrow.container.batch.chunk_channel import has_timestamps
from yarrow.container.batch.key_group_sizes import KeyGroupSizes
from yarrow.container.batch.spilled_runs import SpilledRuns
from yarrow.runtime.graph.batch.batch_plan import BatchStage, ExchangeKind

#: Bytes of a chunk besides its payload.
_OVERHEAD: Final = 200

Place = tuple[int, int, int, int, int, int]


class ChunkOrder:
    """Sorts the chunks of one task: broadcast ones, then by key group or input, then by edge and producer."""

    def __init__(self, stage: BatchStage, budget: int, directory: Path) -> None:
        """`budget`: bytes of chunks in memory; more go to files in `directory`."""
        self._exchanges = {exchange.edge: exchange for exchange in stage.inputs}
        self._budget = budget
        self._runs: SpilledRuns[Chunk] = SpilledRuns(directory, encode_chunk, decode_chunk)
        self._keyed = {exchange.edge for exchange in stage.inputs if exchange.kind is ExchangeKind.KEYED}
        #: Complete when the first chunk leaves.
        self.key_groups = KeyGroupSizes()
        #: Rows and encoded bytes that have come.
        self.rows = 0
        self.bytes = 0
        #: Times of the producers at the end of history; complete when the first chunk of several producers leaves.
        self.end_times: list[EndTime] = []
        #: Edges of which some rows may have a timestamp; complete when the first chunk leaves.
        self.timed: set[int] = set()

    @property
    def spilled_runs(self) -> int:
        """Number of runs on disk."""
        return len(self._runs)

    def ordered(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """All chunks in order; one producer's chunks that come in their order anyway are passed on at once."""
        counted = self._counted(chunks)
        if self._comes_in_order:
            return counted
        return self._sorted(counted)

    @property
    def _comes_in_order(self) -> bool:
        kinds = [exchange.kind for exchange in self._exchanges.values()]
        return kinds == [ExchangeKind.FORWARD]

    def _counted(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            end_time = time_of(chunk)
            if end_time is not None:
                self.end_times.append(end_time)
                continue
            self.rows += chunk.rows
            self.bytes += len(chunk.payload)
            if chunk.edge in self._keyed:
                self.key_groups.count(chunk.target, chunk.rows)
            if has_timestamps(chunk):
                self.timed.add(chunk.edge)
            yield chunk

    def _sorted(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        waiting: list[Chunk] = []
        size = 0
        for chunk in chunks:
            waiting.append(chunk)
            size += len(chunk.payload) + _OVERHEAD
            if size > self._budget:
                waiting.sort(key=self._place)
                self._runs.add(waiting)
                waiting, size = [], 0
        waiting.sort(key=self._place)
        if not len(self._runs):
            # The list is let go of chunk by chunk.
            waiting.reverse()
            while waiting:
                yield waiting.pop()
            return
        self._runs.add(waiting)
        waiting.clear()
        yield from self._runs.merged(self._place)

    def _place(self, chunk: Chunk) -> Place:
        exchange = self._exchanges[chunk.edge]
        kind = exchange.kind
        group = chunk.target if kind is ExchangeKind.KEYED else 0
        return (
            kind is not ExchangeKind.BROADCAST,
            group,
            exchange.target_input,
            chunk.edge,
            chunk.producer,
            chunk.sequence,
        )

    def close(self) -> None:
        """Removes files."""
        self._runs.close()
