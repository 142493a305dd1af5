"""Lists of tuples that never change in place: memory keeps the last tuple, and where the others are.

Owner: the task thread changes them, and the snapshot thread may write them meanwhile. The stored form is that of a list
of tuples, so that tools read it as such. Must not know what the tuples mean.

A list of one tuple is that tuple. A longer one is the fields of its last tuple, and then three more. These are a
Python list, and the places in it where the other tuples start and end. The Python list only grows, so whoever holds an
older value sees nothing of what was appended. So a tuple is appended, and the first one removed, in few steps, whatever
the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from yarrow.common.type_information import TypeSpec
from yarrow.common.typeinfo import ListTypeInfo, TupleTypeInfo, TypeInformation
from yarrow.runtime.data.serializers.columns import (
    COUNT_BYTES,
    Buffer,
    ColumnCoder,
    Misfit,
    append_runs,
    pack_counts,
    write_column_runs,
)
from yarrow.runtime.data.serializers.nested import ListCoder, pack_elements

#: Tuples that were removed, and still lie in a Python list: with more, and more than half, the others are copied.
_MOST_REMOVED: Final = 16
#: Most tuples that are taken apart at once, since a call of C holds the interpreter.
_MOST_TOGETHER: Final = 30_000


class TupleListTypeInfo(TypeInformation):
    """The type of such lists. Operators declare it for state of their own."""

    __slots__ = ()

    def __init__(self, element_type: TupleTypeInfo) -> None:
        object.__setattr__(self, "_identity", (element_type,))

    @property
    def element_type(self) -> TupleTypeInfo:
        """The type of the tuples."""
        element_type: TupleTypeInfo = self._identity[0]
        return element_type

    @property
    def stored_type(self) -> ListTypeInfo:
        """The type of the stored list."""
        return ListTypeInfo(self.element_type)

    @property
    def width(self) -> int:
        """The number of fields of a tuple."""
        return len(self.element_type.get_field_types())

    @property
    def python_type(self) -> type:
        return tuple

    @property
    def is_immutable(self) -> bool:
        return self.element_type.is_immutable

    def accepts(self, value: object) -> bool:
        if not isinstance(value, tuple) or len(value) not in (self.width, self.width + 3):
            return False
        return all(map(self.element_type.accepts, tuples_of(value, self.width)))

    def to_spec(self) -> TypeSpec:
        return self.stored_type.to_spec()

    def __repr__(self) -> str:
        return repr(self.stored_type)


class TupleListCoder(ColumnCoder):
    """The coder of such lists, which writes what ListCoder writes for lists of tuples."""

    def __init__(self, width: int, element: ColumnCoder) -> None:
        self._width = width
        self._element = element
        self._lists = ListCoder(element, nullable=True)
        self.pickles = element.pickles
        self.expected = f"a tuple of {width} fields, or of {width + 3}"

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        counts, tuples = self._parts(values)
        out.append(pack_counts(counts))
        pack_elements(self._element, tuples, out, nullable=True)

    def pack_runs(self, values: Sequence[Any], runs: Sequence[slice], outs: Sequence[list[bytes]]) -> None:
        counts, tuples = self._parts(values)
        if len(tuples) > _MOST_TOGETHER:
            del tuples
            super().pack_runs(values, runs, outs)
            return
        append_runs(pack_counts(counts), COUNT_BYTES, runs, outs)
        if len(tuples) > len(values):
            ends = [0, *accumulate(counts)]
            runs = [slice(ends[run.start], ends[run.stop]) for run in runs]
        write_column_runs(self._element, tuples, runs, outs)

    def _parts(self, values: Sequence[Any]) -> tuple[list[int], list[Any]]:
        """The number of tuples of each list, and all tuples."""
        width = self._width
        lengths = list(map(len, values))
        counts = [1] * len(values)
        if lengths.count(width) == len(values):
            return counts, list(values)
        tuples, behind = list[Any](), 0
        for at in [at for at, length in enumerate(lengths) if length != width]:
            several = tuples_of(values[at], width)
            counts[at] = len(several)
            tuples += values[behind:at]
            tuples += several
            behind = at + 1
        tuples += values[behind:]
        return counts, tuples

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        lists, at = self._lists.unpack(data, at, count)
        return list(map(list_of, lists)), at

    def check(self, value: Any, path: str) -> Misfit | None:
        if type(value) is not tuple or len(value) not in (self._width, self._width + 3):
            return Misfit(path, self.expected, value)
        return self._lists.check(tuples_of(value, self._width), path)


def list_of(tuples: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The form in memory of a list with one tuple at least."""
    return tuples[0] if len(tuples) == 1 else (*tuples[-1], list(tuples[:-1]), 0, len(tuples) - 1)


def tuples_of(value: tuple[Any, ...], width: int) -> list[Any]:
    """The tuples of a list in memory. They may be taken out of it and put back in another order."""
    if len(value) == width:
        return [value]
    before, start, end = value[width:]
    return [*before[start:end], value[:width]]


def appended(value: tuple[Any, ...], width: int, last: tuple[Any, ...]) -> tuple[Any, ...]:
    """The list with a tuple behind its last one. The former value stays as it is."""
    if len(value) == width:
        return (*last, [value], 0, 1)
    before, start, end = value[width:]
    if len(before) != end:
        before, start, end = before[start:end], 0, end - start
    before.append(value[:width])
    return (*last, before, start, end + 1)


def without_first(value: tuple[Any, ...], width: int) -> tuple[Any, ...]:
    """A list of several tuples without its first one. The former value stays as it is."""
    before, start, end = value[width:]
    start += 1
    if start == end:
        return value[:width]
    if start > _MOST_REMOVED and start * 2 > end:
        before, start, end = before[start:end], 0, end - start
    return (*value[:width], before, start, end)
