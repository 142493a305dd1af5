"""The asynchronous part of a heap snapshot: frozen tables are written shard by shard in the canonical form.

Owner: the snapshot thread in `write`; everything else any thread. No step of it holds the interpreter for longer than
a piece of some ten thousand entries. As soon as a shard is written, the task thread is asked to take it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from yarrow.container.state.backend import KeyedBackendContext
from yarrow.container.state.heap_restore import CarriedState
from yarrow.container.state.heap_sections import FrozenSection
from yarrow.container.state.heap_table import PIECE, HeapTable, Layers, pieces_of
from yarrow.container.state.registering_backend import StateRegistration
from yarrow.container.state.ttl import TimeToLive
from yarrow.container.state.value_table import MISSING
from yarrow.runtime.snapshot.handles import KeyedStateHandle
from yarrow.runtime.snapshot.output import SnapshotOutput


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """A table as it was at a cut."""

    registration: StateRegistration
    table: HeapTable
    #: (index for HeapTable.release, dicts) of each shard.
    shards: Sequence[tuple[int, Layers]]


class HeapPendingSnapshot:
    """See PendingKeyedSnapshot."""

    def __init__(
        self,
        context: KeyedBackendContext,
        cut: int,
        tables: Sequence[FrozenTable],
        sections: Sequence[FrozenSection],
        carried: Sequence[CarriedState],
    ) -> None:
        self._context = context
        self._cut = cut
        self._tables = tables
        self._sections = sections
        self._carried = carried

    def write(self, output: SnapshotOutput) -> tuple[KeyedStateHandle, ...]:
        """See PendingKeyedSnapshot."""
        raise NotImplementedError

    def discard(self) -> None:
        """See PendingKeyedSnapshot."""
        cut, tables = self._cut, self._tables

        def release() -> None:
            for frozen in tables:
                for index, _ in frozen.shards:
                    frozen.table.release(cut, index)

        self._context.post(release)

    def _pieces(self, frozen: FrozenTable) -> Iterator[tuple[list[Any], list[Any]]]:
        """Keys and contents of a table; each shard is given back once its content was taken by the consumer."""
        written: list[int] = []
        entries = 0
        for index, layers in frozen.shards:
            for keys, contents in pieces_of(layers, PIECE):
                entries += len(keys)
                yield _living(frozen.registration, keys, contents)
            written.append(index)
            # Small shards go back together: a mail costs more than merging a few entries.
            if entries >= PIECE:
                self._give_back(frozen.table, written)
                written, entries = [], 0
        self._give_back(frozen.table, written)

    def _give_back(self, table: HeapTable, shards: Sequence[int]) -> None:
        cut = self._cut

        def release() -> None:
            for index in shards:
                table.release(cut, index)

        self._context.post(release)


def _living(
    registration: StateRegistration, keys: list[Any], contents: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Without what has expired."""
    ttl = registration.ttl
    if ttl is None:
        return keys, contents
    deadline, kind = ttl.deadline(), registration.kind
    left = [TimeToLive.living(kind, content, deadline) for content in contents]
    return (
        [key for key, content in zip(keys, left, strict=True) if content is not MISSING],
        [content for content in left if content is not MISSING],
    )
