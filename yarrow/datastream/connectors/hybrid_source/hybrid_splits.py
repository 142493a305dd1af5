"""The splits of a HybridSource, the state of its enumerator, and the events between enumerator and readers.

Owner: none (frozen values). Checkpoints hold the first two: changing a field changes savepoints. A source is named by
its place in the chain, counted from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from yarrow.datastream.connectors.base import SourceSplit


@dataclass(frozen=True)
class MadeSource:
    """A source that a function has made at the switch, as a pickle."""

    pickled: bytes

    def __reduce__(self) -> tuple[type[MadeSource], tuple[bytes]]:
        """Makes the codec of state count the value as a pickle: whoever may read no pickles must not get this one."""
        return MadeSource, (self.pickled,)


@dataclass(frozen=True, slots=True)
class HybridSourceSplit(SourceSplit):
    """A split of one source of the chain."""

    source_index: int
    wrapped: SourceSplit
    #: The source, if it was made at the switch.
    made: MadeSource | None = None

    @property
    def split_id(self) -> str:
        return split_id_of(self.source_index, self.wrapped.split_id)


def split_id_of(source_index: int, wrapped_id: str) -> str:
    """Return the id of a split, which is unique among all sources of the chain."""
    return f"{source_index}:{wrapped_id}"


@dataclass(frozen=True, slots=True)
class HybridEnumeratorState:
    """The enumerator's part of a checkpoint."""

    #: The source that is read now.
    source_index: int
    #: The state of that source's enumerator.
    wrapped: Any
    #: The source, if it was made at the switch.
    made: MadeSource | None
    #: Splits of earlier sources that came back from readers and wait for a reader.
    returned: tuple[HybridSourceSplit, ...]


# ---------------------------------------------------------------------- from readers


@dataclass(frozen=True, slots=True)
class SourceFinished:
    """The reader has read all splits of this source; -1 = it has read no source yet."""

    source_index: int


@dataclass(frozen=True, slots=True)
class SourceOpened:
    """The reader begins to read this source: with restored splits, or because of a SwitchSource."""

    source_index: int


@dataclass(frozen=True, slots=True)
class SplitRequested:
    """The reader of this source asks for a split."""

    source_index: int


@dataclass(frozen=True, slots=True)
class FromReader:
    """An event of the reader of this source for its enumerator."""

    source_index: int
    event: Any


# ---------------------------------------------------------------------- to readers


@dataclass(frozen=True, slots=True)
class SwitchSource:
    """The reader may begin to read this source."""

    source_index: int
    #: The source, if it was made at the switch.
    made: MadeSource | None


@dataclass(frozen=True, slots=True)
class NoMoreSplits:
    """The reader gets no further split of this source."""

    source_index: int


@dataclass(frozen=True, slots=True)
class FromEnumerator:
    """An event of the enumerator of this source for its reader."""

    source_index: int
    event: Any
