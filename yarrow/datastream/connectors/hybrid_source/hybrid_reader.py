"""The reader of a HybridSource: runs the reader of one source after another.

Owner: the task's thread. It reads the splits of the earliest source first, also where a later source is open. At the
end of a source it tells the enumerator, and begins the next source when the enumerator says so. Must not know which
splits there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from yarrow.datastream.connectors.base import (
    NothingAvailable,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
)
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.hybrid_source.hybrid_enumerator import Chain
from yarrow.datastream.connectors.hybrid_source.hybrid_splits import (
    FromEnumerator,
    FromReader,
    HybridSourceSplit,
    MadeSource,
    NoMoreSplits,
    SourceFinished,
    SourceOpened,
    SplitRequested,
    SwitchSource,
    split_id_of,
)

T = TypeVar("T")


@dataclass(slots=True)
class _OpenSource(Generic[T]):
    """A source whose reader runs."""

    reader: SourceReader[T, SourceSplit]
    made: MadeSource | None
    #: Ids of its splits that have not ended.
    split_ids: set[str] = field(default_factory=set)


class HybridSourceReader(SourceReader[T, HybridSourceSplit], Generic[T]):
    """Reads the sources of a chain in their order."""

    def __init__(self, context: SourceReaderContext, chain: Chain) -> None:
        self._context = context
        self._chain = chain
        #: By place: usually one. A source waits while splits of an earlier one, which came back, are read.
        self._open: dict[int, _OpenSource[T]] = {}
        #: Splits of sources that are not open.
        self._held: dict[int, list[HybridSourceSplit]] = {}
        #: Sources that are not open, and of which no further split comes; and events of their enumerators.
        self._complete: set[int] = set()
        self._events: dict[int, list[Any]] = {}
        #: The latest source that the enumerator has allowed, and the latest that was read to its end.
        self._allowed = SwitchSource(-1, None)
        self._finished = -1
        #: True when the enumerator was told of the end of source `_finished`.
        self._told = False
        #: True when no source has a further split for this reader.
        self.has_all_splits = False
        self._paused: set[str] = set()
        #: Bytes that the sources have read that are closed; None = nobody has asked for bytes.
        self._closed_bytes: int | None = None

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """Return rows of the earliest source; where none is open, opens the next one or asks for it."""
        # Not before: in BATCH mode the reader hears of its splits after `start`.
        index = self._earliest()
        if index is None:
            return None if self.has_all_splits else NothingAvailable()
        found = self._open[index].reader.poll(max_rows)
        if isinstance(found, SourceRecords):
            return self._marked(index, found)
        if found is not None:
            return found
        if index == self._chain.last_index:
            return None
        ended = self._end_source(index)
        return SourceRecords((), finished_before=ended) if ended else NothingAvailable(0.0)

    def _marked(self, index: int, records: SourceRecords) -> SourceRecords:
        """Return the records with the ids of this source's splits."""
        ended = tuple(split_id_of(index, split_id) for split_id in records.finished_before)
        self._open[index].split_ids.difference_update(ended)
        split_id = None if records.split_id is None else split_id_of(index, records.split_id)
        side = None if records.side is None else placed(index, records.side)
        return replace(records, split_id=split_id, finished_before=ended, side=side)

    # ------------------------------------------------------------------ from one source to the next

    def _earliest(self) -> int | None:
        """Return the place of the earliest source, and open that source; None = the enumerator is asked for one."""
        index = min((*self._open, *self._held), default=None)
        if index is None and self._allowed.source_index > self._finished:
            index = self._allowed.source_index
        if index is not None:
            if index not in self._open:
                self._open_source(index)
        elif not (self.has_all_splits or self._told):
            self._told = True
            self._context.send_event_to_enumerator(SourceFinished(self._finished))
        return index

    def _open_source(self, index: int) -> None:
        splits = self._held.pop(index, [])
        made = splits[0].made if splits else self._allowed.made
        source = self._chain.source_at(index, made)
        reader = source.create_reader(_MemberContext(self._context, index, self))
        if self._closed_bytes is not None:
            # A reader may count from the first call on.
            reader.bytes_read()
        self._open[index] = _OpenSource(reader, made)
        if not self.has_all_splits:
            # A reader that has them all needs nothing of the enumerator, and in BATCH mode there is none by then.
            self._context.send_event_to_enumerator(SourceOpened(index))
        if splits:
            self._add_to_open(index, splits)
        if self.has_all_splits or index in self._complete:
            reader.notify_no_more_splits()
        self._complete.discard(index)
        reader.start()
        for event in self._events.pop(index, ()):
            reader.handle_source_event(event)

    def _end_source(self, index: int) -> tuple[str, ...]:
        """Closes a source that has ended; returns the ids of its splits whose end was not told before."""
        ended = self._open.pop(index)
        self._finished = max(self._finished, index)
        self._told = False
        if self._closed_bytes is not None:
            self._closed_bytes += ended.reader.bytes_read()
        prefix = split_id_of(index, "")
        self._paused = {split_id for split_id in self._paused if not split_id.startswith(prefix)}
        ended.reader.close()
        return tuple(sorted(ended.split_ids))

    # ------------------------------------------------------------------ splits

    def add_splits(self, splits: Sequence[HybridSourceSplit]) -> None:
        """Hands splits to their source; where it is not open they wait."""
        for split in splits:
            if split.source_index in self._open:
                self._add_to_open(split.source_index, [split])
            else:
                self._held.setdefault(split.source_index, []).append(split)

    def _add_to_open(self, index: int, splits: Sequence[HybridSourceSplit]) -> None:
        opened = self._open[index]
        opened.split_ids.update(split.split_id for split in splits)
        opened.reader.add_splits([split.wrapped for split in splits])
        if paused := [split.wrapped.split_id for split in splits if split.split_id in self._paused]:
            opened.reader.pause_or_resume_splits(paused, ())

    def notify_no_more_splits(self) -> None:
        """Hear that no source has a further split for this reader."""
        self.has_all_splits = True
        for opened in self._open.values():
            opened.reader.notify_no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[HybridSourceSplit]:
        """The splits of open sources at their positions, and those that wait."""
        found = [split for splits in self._held.values() for split in splits]
        for index, opened in self._open.items():
            wrapped = opened.reader.snapshot_state(checkpoint_id)
            found += [HybridSourceSplit(index, split, opened.made) for split in wrapped]
        return found

    def pause_or_resume_splits(
        self, splits_to_pause: Collection[str], splits_to_resume: Collection[str]
    ) -> None:
        """Stops or resumes splits of open sources; those that wait are stopped when their source is opened."""
        self._paused.update(splits_to_pause)
        self._paused.difference_update(splits_to_resume)
        for index, opened in self._open.items():
            pause, resume = _of_source(index, splits_to_pause), _of_source(index, splits_to_resume)
            if pause or resume:
                opened.reader.pause_or_resume_splits(pause, resume)

    def unreachable_splits(self) -> Collection[str]:
        """Return the ids of splits of open sources that cannot be reached."""
        return [
            split_id_of(index, split_id)
            for index, opened in self._open.items()
            for split_id in opened.reader.unreachable_splits()
        ]

    # ------------------------------------------------------------------ engine

    def handle_source_event(self, event: Any) -> None:
        """Takes an event of the enumerator, or one of a source's enumerator; the latter waits for its source."""
        match event:
            case SwitchSource(index):
                if index > self._allowed.source_index:
                    self._allowed = event
            case NoMoreSplits(index):
                if index in self._open:
                    self._open[index].reader.notify_no_more_splits()
                elif self._may_open(index):
                    self._complete.add(index)
            case FromEnumerator(index, inner):
                if index in self._open:
                    self._open[index].reader.handle_source_event(inner)
                elif self._may_open(index):
                    self._events.setdefault(index, []).append(inner)

    def _may_open(self, index: int) -> bool:
        return index > self._finished or index in self._held

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tells the readers of open sources."""
        for opened in self._open.values():
            opened.reader.notify_checkpoint_complete(checkpoint_id)

    def pending_records(self) -> int | None:
        """Return the records of open sources' splits that are not read."""
        return _sum([opened.reader.pending_records() for opened in list(self._open.values())])

    def pending_bytes(self) -> int | None:
        """Return the bytes of open sources' splits that are not read."""
        return _sum([opened.reader.pending_bytes() for opened in list(self._open.values())])

    def bytes_read(self) -> int:
        """Return the bytes of rows of all sources since the first call."""
        if self._closed_bytes is None:
            self._closed_bytes = 0
        return self._closed_bytes + sum(opened.reader.bytes_read() for opened in self._open.values())

    def own_metrics(self) -> Mapping[str, float]:
        """Return the metrics of open sources."""
        found: dict[str, float] = {}
        for opened in list(self._open.values()):
            found |= opened.reader.own_metrics()
        return found

    def close(self) -> None:
        """Closes the open sources."""
        opened, self._open = self._open, {}
        for each in opened.values():
            each.reader.close()


def placed(index: int, side: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return values for side outputs, of which dead letters tell the place of their source."""
    return [(tag, value.of_source(index) if isinstance(value, DeadLetter) else value) for tag, value in side]


def _of_source(index: int, split_ids: Iterable[str]) -> list[str]:
    """Return the ids that the source itself gave to those of these splits that are its own."""
    prefix = split_id_of(index, "")
    return [split_id.removeprefix(prefix) for split_id in split_ids if split_id.startswith(prefix)]


def _sum(found: Sequence[int | None]) -> int | None:
    """Return the sum; None where there is nothing, or one is unknown."""
    known = [count for count in found if count is not None]
    return sum(known) if found and len(known) == len(found) else None


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
