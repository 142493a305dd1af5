"""The usual enumerator and reader: splits handed out on request, and read one after another.

Owner: the engine's thread for the enumerator, the task's thread for the reader. What a split holds is left
to the subclass; positions live in the splits alone, so that a snapshot is the list of splits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Generic, TypeVar

from yarrow.datastream.connectors.base import (
    NothingAvailable,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)

T = TypeVar("T")
SplitT = TypeVar("SplitT", bound=SourceSplit)


class OnRequestEnumerator(SplitEnumerator[SplitT], Generic[SplitT]):
    """Gives the next split to whichever reader asks; its state is the list of splits not given yet."""

    def __init__(self, context: SplitEnumeratorContext[SplitT], splits: Iterable[SplitT]) -> None:
        self._context = context
        self._unassigned = deque(splits)

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        """Assigns the next split, or says that there is none."""
        if self._unassigned:
            self._context.assign_split(self._unassigned.popleft(), subtask)
        else:
            self._context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[SplitT], subtask: int) -> None:
        """Puts splits back, before all others."""
        self._unassigned.extendleft(reversed(splits))

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """The splits not given yet."""
        return list(self._unassigned)


class ShareEnumerator(OnRequestEnumerator[SplitT], Generic[SplitT]):
    """An enumerator that gives each reader its own share, however late the reader asks: split i goes to reader i.

    Splits that come back, or from a checkpoint, go to their own reader if that asks first, else to any. Their
    reader may have ended, or belong to another parallelism.
    """

    def __init__(
        self,
        context: SplitEnumeratorContext[SplitT],
        fresh: Iterable[SplitT],
        checkpoint: Sequence[SplitT] | None,
    ) -> None:
        """Split ids of `fresh` are the numbers of their readers."""
        super().__init__(context, unassigned_or(checkpoint, fresh))
        #: Ids of splits that any reader may take.
        self._free = set() if checkpoint is None else {split.split_id for split in checkpoint}

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        """Assigns the reader's own share, else a split that is left to all, or says that there is none."""
        own = [split for split in self._unassigned if split.split_id == str(subtask)]
        free = [split for split in self._unassigned if split.split_id in self._free]
        for split in (*own, *free)[:1]:
            self._unassigned.remove(split)
            self._context.assign_split(split, subtask)
            return
        self._context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[SplitT], subtask: int) -> None:
        """Puts splits back; from now on any reader may have them."""
        self._free.update(split.split_id for split in splits)
        super().add_splits_back(splits, subtask)


class OneByOneReader(SourceReader[T, SplitT], Generic[T, SplitT]):
    """Reads its splits in the order they came and asks for another when none is left."""

    def __init__(self, context: SourceReaderContext) -> None:
        self._context = context
        self._waiting: deque[SplitT] = deque()
        self._has_open_split = False
        self._asked = False
        self._no_more_splits = False
        #: Splits that have ended since records were last handed over.
        self._finished: list[str] = []
        #: Ids of the splits that are not read for now.
        self._paused: set[str] = set()

    @abstractmethod
    def open_split(self, split: SplitT) -> None:
        """Begins or resumes a split."""

    @abstractmethod
    def read_split(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """Return up to `max_rows` rows of the open split; None = its end."""

    @abstractmethod
    def current_split(self) -> SplitT:
        """The open split with its present position."""

    def close_split(self) -> None:
        """Lets go of the open split: at its end, and when the reader closes."""
        return None

    def start(self) -> None:
        """Asks for a split unless some were restored."""
        self._ask_if_idle()

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """Rows of the open split, or of the next one."""
        while True:
            if self._paused and self._has_open_split and self.current_split().split_id in self._paused:
                self._put_back()
            if not self._has_open_split:
                if not self._waiting:
                    if self._no_more_splits:
                        return None
                    self._ask_if_idle()
                    return self._nothing()
                following = self._next_split()
                if following is None:
                    return self._nothing()
                self.open_split(following)
                self._has_open_split = True
            found = self.read_split(max_rows)
            if found is not None:
                if self._finished and isinstance(found, SourceRecords):
                    found.finished_before = tuple(self._finished)
                    self._finished.clear()
                return found
            self._finished.append(self.current_split().split_id)
            self._paused.discard(self._finished[-1])
            self._has_open_split = False
            self.close_split()

    def _nothing(self) -> SourceRecords | NothingAvailable:
        """Tell that nothing is there, or of ended splits where others are paused: these may wait for the ended ones."""
        if not (self._finished and self._paused):
            return NothingAvailable()
        finished = tuple(self._finished)
        self._finished.clear()
        return SourceRecords((), finished_before=finished)

    def _next_split(self) -> SplitT | None:
        """Take the first waiting split that is not paused; None = all are."""
        for position, split in enumerate(self._waiting):
            if split.split_id not in self._paused:
                del self._waiting[position]
                return split
        return None

    def _put_back(self) -> None:
        """Put the open split, at its position, behind the waiting ones."""
        self._waiting.append(self.current_split())
        self._has_open_split = False
        self.close_split()

    def pause_or_resume_splits(
        self, splits_to_pause: Collection[str], splits_to_resume: Collection[str]
    ) -> None:
        """Stops or resumes splits: a paused open split makes room for a waiting one."""
        self._paused.update(splits_to_pause)
        self._paused.difference_update(splits_to_resume)

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Put splits behind the present ones."""
        self._asked = False
        self._waiting.extend(splits)

    def notify_no_more_splits(self) -> None:
        """Ends the reader when its splits are read."""
        self._no_more_splits = True

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """Return the open split at its position, then the waiting splits."""
        return self.splits_held()

    def splits_held(self) -> list[SplitT]:
        """Return the open split at its position, then the waiting splits."""
        opened = [self.current_split()] if self._has_open_split else []
        return opened + list(self._waiting)

    def close(self) -> None:
        """Closes the open split."""
        if self._has_open_split:
            self._has_open_split = False
            self.close_split()

    def _ask_if_idle(self) -> None:
        if not (self._asked or self._waiting or self._has_open_split or self._no_more_splits):
            self._asked = True
            self._context.request_split()


def unassigned_or(checkpoint: Any, fresh: Iterable[SplitT]) -> Iterable[SplitT]:
    """Return the first splits of an enumerator: those of its checkpoint, else `fresh`."""
    return fresh if checkpoint is None else checkpoint
