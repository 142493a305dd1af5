"""KeyGroupSizes: how many records each key group of a task has, and which key the largest one has most of.

Owner: the task thread. It counts chunks and looks at a few records of one of them: nothing happens for each record.
Must not judge sizes, since it knows those of one task alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from yarrow.container.batch.folding.partial_rows import PartialRows
from yarrow.container.batch.key_order import KeyedEdge
from yarrow.container.batch.largest_key_group import LARGE_RECORDS, LargestKeyGroup
from yarrow.container.protocol.failure import short_record
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.elements import Batch, RowBatch
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.graph.job_graph import JobEdge

#: Records of a chunk whose keys are looked at.
_SAMPLE: Final = 200


class KeyGroupSizes:
    """Records of the key groups of one task."""

    def __init__(self) -> None:
        self._records = Counter[int]()

    def count(self, key_group: int, records: int) -> None:
        """Counts a chunk."""
        self._records[key_group] += records

    def is_largest(self, key_group: int) -> bool:
        """Whether no other has more records, once all chunks were counted; the lowest of several."""
        return key_group == self._largest[0]

    def largest(self, key: Callable[[], str]) -> LargestKeyGroup:
        """The largest one; `key` finds its key if it is large."""
        group, records = self._largest
        return LargestKeyGroup(
            key_group=group,
            records=records,
            key=key() if records >= LARGE_RECORDS else "",
            task_records=sum(self._records.values()),
            task_key_groups=len(self._records),
        )

    @property
    def _largest(self) -> tuple[int, int]:
        if self._known_largest is None:
            self._known_largest = min(self._records.items(), key=lambda item: (-item[1], item[0]))
        return self._known_largest

    _known_largest: tuple[int, int] | None = None


def most_frequent_key(edge: JobEdge, batch: Batch, edges: Mapping[int, KeyedEdge]) -> str:
    """The key of most records of a batch, by a sample of them; "" = no key has most of them.

    A key that cannot be computed is no failure here: it fails where it is needed.
    """
    step = max(1, len(batch) // _SAMPLE)
    try:
        keys = [canonicalize(key) for key in _keys(edge, batch, edges, step)]
    except Exception:  # user code may raise anything
        return ""
    found, count = Counter(keys).most_common(1)[0]
    return short_record(found) if 2 * count > len(keys) else ""


def _keys(edge: JobEdge, batch: Batch, edges: Mapping[int, KeyedEdge], step: int) -> Sequence[Any]:
    """The keys of each `step`-th record."""
    if isinstance(batch, PartialRows):
        return [key for key, _ in batch.rows[::step]]
    if isinstance(batch, RowBatch):
        key_of = edges[edge.index].key
        return [key_of(row) for row in batch.rows[::step]]
    columns = edge.partitioner.key_column
    assert columns is not None, "a keyed edge of columns names them"
    key = BatchKey(columns)
    values = [column.to_pylist()[::step] for column in key.columns_of(batch.batch)]
    return list(zip(*values, strict=True)) if key.is_tuple else values[0]
