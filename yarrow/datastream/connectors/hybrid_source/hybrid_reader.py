"""The reader of a HybridSource: runs the reader of one source after another.

Owner: the task's thread. It reads the splits of the earliest source first. At the end of a source it tells the
enumerator, and begins the next source when the enumerator says so. Must not know which splits there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from yarrow.datastream.connectors.base import (
    NothingAvailable,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
)
from yarrow.datastream.connectors.hybrid_source.hybrid_enumerator import Chain
from yarrow.datastream.connectors.hybrid_source.hybrid_splits import (
    FromEnumerator,
    FromReader,
    HybridSourceSplit,
    NoMoreSplits,
    SourceFinished,
    SplitRequested,
    SwitchSource,
    split_id_of,
)

T = TypeVar("T")


class HybridSourceReader(SourceReader[T, HybridSourceSplit], Generic[T]):
    """Reads the sources of a chain in their order."""

    def __init__(self, context: SourceReaderContext, chain: Chain) -> None:
        self._context = context
        self._chain = chain
        #: The open source and its reader; None = none is open.
        self._index = -1
        self._made: bytes | None = None
        self._reader: SourceReader[T, SourceSplit] | None = None
        #: Splits of sources that are not open.
        self._held: dict[int, list[HybridSourceSplit]] = {}
        #: The latest source that the enumerator has allowed, and the latest that was read to its end.
        self._allowed = SwitchSource(-1, None)
        self._finished = -1
        #: True when the enumerator was told of the end of source `_finished`.
        self._told = False
        #: True when no source has a further split for this reader.
        self.has_all_splits = False
        #: Ids of the open source's splits that have not ended.
        self._open_ids: set[str] = set()
        self._paused: set[str] = set()

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """Return rows of the open source; where none is open, opens the next one or asks for it."""
        if self._reader is None:
            # Not before: in BATCH mode the reader hears of its splits after `start`.
            self._go_on()
        if self._reader is None:
            return None if self.has_all_splits and not self._held else NothingAvailable()
        found = self._reader.poll(max_rows)
        if isinstance(found, SourceRecords):
            return self._marked(found)
        if found is not None:
            return found
        if self._index == self._chain.last_index and not self._held:
            return None
        ended = tuple(sorted(self._open_ids))
        self._end_source()
        return SourceRecords((), finished_before=ended) if ended else NothingAvailable(0.0)

    def _marked(self, records: SourceRecords) -> SourceRecords:
        """Return the records with the ids of this source's splits."""
        ended = tuple(split_id_of(self._index, split_id) for split_id in records.finished_before)
        self._open_ids.difference_update(ended)
        split_id = None if records.split_id is None else split_id_of(self._index, records.split_id)
        return replace(records, split_id=split_id, finished_before=ended)

    # ------------------------------------------------------------------ from one source to the next

    def _go_on(self) -> None:
        """Opens the source that is next, or asks for it."""
        if self._held:
            index = min(self._held)
            self._open(index, self._held[index][0].made)
        elif self._allowed.source_index > self._finished:
            self._open(self._allowed.source_index, self._allowed.made)
        elif not (self.has_all_splits or self._told):
            self._told = True
            self._context.send_event_to_enumerator(SourceFinished(self._finished))

    def _open(self, index: int, made: bytes | None) -> None:
        self._index, self._made = index, made
        source = self._chain.source_at(index, made)
        reader = source.create_reader(_MemberContext(self._context, index, self))
        self._reader = reader
        if splits := self._held.pop(index, []):
            self._add_to_open(reader, splits)
        if self.has_all_splits:
            reader.notify_no_more_splits()
        reader.start()

    def _end_source(self) -> None:
        assert self._reader is not None
        reader, self._reader = self._reader, None
        self._finished = max(self._finished, self._index)
        self._told = False
        self._paused.clear()
        self._open_ids.clear()
        reader.close()

    # ------------------------------------------------------------------ splits

    def add_splits(self, splits: Sequence[HybridSourceSplit]) -> None:
        """Hands splits to the open source; those of others wait until their source is open."""
        own = []
        for split in splits:
            if self._reader is not None and split.source_index == self._index:
                own.append(split)
            else:
                self._held.setdefault(split.source_index, []).append(split)
        if own and self._reader is not None:
            self._add_to_open(self._reader, own)

    def _add_to_open(self, reader: SourceReader[T, SourceSplit], splits: Iterable[HybridSourceSplit]) -> None:
        found = list(splits)
        self._open_ids.update(split.split_id for split in found)
        reader.add_splits([split.wrapped for split in found])
        if paused := [split.wrapped.split_id for split in found if split.split_id in self._paused]:
            reader.pause_or_resume_splits(paused, ())

    def notify_no_more_splits(self) -> None:
        """Hear that no source has a further split for this reader."""
        self.has_all_splits = True
        if self._reader is not None:
            self._reader.notify_no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[HybridSourceSplit]:
        """The splits of the open source at their positions, and those that wait."""
        found = [split for splits in self._held.values() for split in splits]
        if self._reader is not None:
            wrapped = self._reader.snapshot_state(checkpoint_id)
            found += [HybridSourceSplit(self._index, split, self._made) for split in wrapped]
        return found

    def pause_or_resume_splits(
        self, splits_to_pause: Collection[str], splits_to_resume: Collection[str]
    ) -> None:
        """Stops or resumes splits of the open source; those that wait are stopped when their source is opened."""
        self._paused.update(splits_to_pause)
        self._paused.difference_update(splits_to_resume)
        pause, resume = self._of_open(splits_to_pause), self._of_open(splits_to_resume)
        if self._reader is not None and (pause or resume):
            self._reader.pause_or_resume_splits(pause, resume)

    def _of_open(self, split_ids: Iterable[str]) -> list[str]:
        prefix = split_id_of(self._index, "")
        return [split_id.removeprefix(prefix) for split_id in split_ids if split_id.startswith(prefix)]

    # ------------------------------------------------------------------ engine

    def handle_source_event(self, event: Any) -> None:
        """Takes an event of the enumerator, or one of the open source's enumerator."""
        match event:
            case SwitchSource(index):
                if index > self._allowed.source_index:
                    self._allowed = event
            case NoMoreSplits(index) if index == self._index and self._reader is not None:
                self._reader.notify_no_more_splits()
            case FromEnumerator(index, inner) if index == self._index and self._reader is not None:
                self._reader.handle_source_event(inner)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tells the reader of the open source."""
        if self._reader is not None:
            self._reader.notify_checkpoint_complete(checkpoint_id)

    def pending_records(self) -> int | None:
        """Return the records of the open source's splits that are not read."""
        reader = self._reader
        return None if reader is None else reader.pending_records()

    def pending_bytes(self) -> int | None:
        """Return the bytes of the open source's splits that are not read."""
        reader = self._reader
        return None if reader is None else reader.pending_bytes()

    def close(self) -> None:
        """Closes the open source."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


class _MemberContext:
    """The engine as the reader of one source sees it."""

    def __init__(self, context: SourceReaderContext, index: int, owner: HybridSourceReader[Any]) -> None:
        self._context = context
        self._index = index
        self._owner = owner

    @property
    def subtask_index(self) -> int:
        return self._context.subtask_index

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    @property
    def configuration(self) -> Mapping[str, str]:
        return self._context.configuration

    def request_split(self) -> None:
        if not self._owner.has_all_splits:
            self._context.send_event_to_enumerator(SplitRequested(self._index))

    def send_event_to_enumerator(self, event: Any) -> None:
        self._context.send_event_to_enumerator(FromReader(self._index, event))

    def wake_up(self) -> None:
        self._context.wake_up()
