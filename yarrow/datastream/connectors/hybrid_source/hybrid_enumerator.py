"""The enumerator of a HybridSource: runs the enumerator of one source after another.

Owner: the engine's thread for enumerators. It begins the next source when all readers have finished the present one.
A failed reader may go back to an earlier source. It reads that source to its end, apart from the others, and then joins
the present one. Must not read records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from yarrow.datastream.connectors.base import (
    Source,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.hybrid_source.hybrid_splits import (
    FromEnumerator,
    FromReader,
    HybridEnumeratorState,
    HybridSourceSplit,
    MadeSource,
    NoMoreSplits,
    SourceFinished,
    SourceOpened,
    SplitRequested,
    SwitchSource,
)


class Chain(Protocol):
    """The sources in their order."""

    @property
    def last_index(self) -> int:
        """The place of the last source."""
        ...

    def made_at(self, index: int, previous: SplitEnumerator[Any]) -> MadeSource | None:
        """Make the source at a place, behind the enumerator of the one before; None = the program gave the source."""
        ...

    def source_at(self, index: int, made: MadeSource | None) -> Source[Any, Any]:
        """Return the source at a place."""
        ...


class HybridSplitEnumerator(SplitEnumerator[HybridSourceSplit]):
    """Deals out the splits of the present source, with its place in the chain."""

    def __init__(
        self,
        context: SplitEnumeratorContext[HybridSourceSplit],
        chain: Chain,
        checkpoint: HybridEnumeratorState | None,
    ) -> None:
        self._context = context
        self._chain = chain
        #: The place of the present source.
        self.source_index = 0 if checkpoint is None else checkpoint.source_index
        self._made = None if checkpoint is None else checkpoint.made
        self._returned = deque(() if checkpoint is None else checkpoint.returned)
        #: The last source that each reader has read to its end.
        self._finished: dict[int, int] = {}
        #: The readers of the present source.
        self.members: set[int] = set()
        #: Readers that want the splits of all sources before they read: those of BATCH mode.
        self._in_advance: set[int] = set()
        self._enumerator = self._created(None if checkpoint is None else checkpoint.wrapped)

    def _created(self, state: Any) -> SplitEnumerator[SourceSplit]:
        source = self._chain.source_at(self.source_index, self._made)
        context = _MemberContext(self, self._context, self.source_index)
        return source.create_enumerator(context, state)

    @property
    def _is_last(self) -> bool:
        return self.source_index == self._chain.last_index

    def start(self) -> None:
        """Starts the enumerator of the present source."""
        self._enumerator.start()

    # ------------------------------------------------------------------ readers

    def add_reader(self, subtask: int) -> None:
        """Gives the reader, new or restored, the splits of earlier sources that wait for one."""
        self._forget(subtask)
        while self._returned:
            self._context.assign_split(self._returned.popleft(), subtask)

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        """Assigns the next split, of whatever source, to a reader of BATCH mode: it reads when it has them all.

        A reader of a stream sends SplitRequested instead.
        """
        self._in_advance.add(subtask)
        self._add_member(subtask)
        self._enumerator.handle_split_request(subtask, host)

    def handle_source_event(self, subtask: int, event: Any) -> None:
        """Takes an event of a reader, or one of its sources' readers."""
        match event:
            case SourceFinished(index):
                self._finished[subtask] = index
                if index < self.source_index:
                    self._join(subtask)
                else:
                    self._switch_if_all_finished()
            case SourceOpened(index) if index == self.source_index:
                self._add_member(subtask)
            case SplitRequested(index) if index == self.source_index:
                host = self._context.registered_readers.get(subtask)
                self._enumerator.handle_split_request(subtask, host)
            case SourceOpened(index) | SplitRequested(index):
                # All splits of an earlier source are dealt out.
                self._context.send_event_to_reader(subtask, NoMoreSplits(index))
            case FromReader(index, inner) if index == self.source_index:
                self._enumerator.handle_source_event(subtask, inner)

    def add_splits_back(self, splits: Sequence[HybridSourceSplit], subtask: int) -> None:
        """Gives splits back to the present source's enumerator; those of earlier sources wait for the reader."""
        self._forget(subtask)
        present = [split.wrapped for split in splits if split.source_index == self.source_index]
        self._returned.extend(split for split in splits if split.source_index != self.source_index)
        if present:
            self._enumerator.add_splits_back(present, subtask)

    def _forget(self, subtask: int) -> None:
        self._finished.pop(subtask, None)
        self.members.discard(subtask)

    def _join(self, subtask: int) -> None:
        self._context.send_event_to_reader(subtask, SwitchSource(self.source_index, self._made))
        self._add_member(subtask)

    def _add_member(self, subtask: int) -> None:
        """Adds a reader of the present source, unless it is one: a restored reader opens it without a switch."""
        if subtask not in self.members:
            self.members.add(subtask)
            self._enumerator.add_reader(subtask)

    def signal_no_more_splits(self, subtask: int) -> None:
        """Tells a reader that the present source has no further split for it."""
        if self._is_last:
            self._context.signal_no_more_splits(subtask)
        elif subtask in self._in_advance:
            self._finished[subtask] = self.source_index
            self._switch_if_all_finished()
        else:
            self._context.send_event_to_reader(subtask, NoMoreSplits(self.source_index))

    def _switch_if_all_finished(self) -> None:
        readers = range(self._context.parallelism)
        registered = self._context.registered_readers
        if self._is_last or not all(
            subtask in registered and self._finished.get(subtask, -1) >= self.source_index
            for subtask in readers
        ):
            return
        previous = self._enumerator
        self._made = self._chain.made_at(self.source_index + 1, previous)
        previous.close()
        self.source_index += 1
        self.members.clear()
        self._enumerator = self._created(None)
        self._enumerator.start()
        for subtask in readers:
            if subtask in self._in_advance:
                self.handle_split_request(subtask, registered.get(subtask))
            else:
                self._join(subtask)

    # ------------------------------------------------------------------ checkpoints

    def snapshot_state(self, checkpoint_id: int) -> HybridEnumeratorState:
        """The place of the present source, and the state of its enumerator."""
        wrapped = self._enumerator.snapshot_state(checkpoint_id)
        return HybridEnumeratorState(self.source_index, wrapped, self._made, tuple(self._returned))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tells the enumerator of the present source."""
        self._enumerator.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        """Closes the enumerator of the present source."""
        self._enumerator.close()


class _MemberContext:
    """The engine as the enumerator of one source sees it: its readers are those that read this source."""

    def __init__(
        self,
        owner: HybridSplitEnumerator,
        context: SplitEnumeratorContext[HybridSourceSplit],
        index: int,
    ) -> None:
        self._owner = owner
        self._context = context
        self._index = index
        self._made = owner._made

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    @property
    def registered_readers(self) -> Mapping[int, str]:
        hosts = self._context.registered_readers
        return {subtask: hosts[subtask] for subtask in self._owner.members if subtask in hosts}

    def assign_split(self, split: SourceSplit, subtask: int) -> None:
        self._context.assign_split(HybridSourceSplit(self._index, split, self._made), subtask)

    def signal_no_more_splits(self, subtask: int) -> None:
        # A source that goes on talking when its time is over is not heard.
        self._if_present(lambda: self._owner.signal_no_more_splits(subtask))

    def send_event_to_reader(self, subtask: int, event: Any) -> None:
        self._context.send_event_to_reader(subtask, FromEnumerator(self._index, event))

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        self._context.call_later(seconds, lambda: self._if_present(action))

    def _if_present(self, action: Callable[[], None]) -> None:
        """Runs what a source wants, unless its time is over."""
        if self._owner.source_index == self._index:
            action()
