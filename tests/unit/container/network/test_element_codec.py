"""The codec of an edge of declared type: the task that sends a row that does not fit fails, not the one that reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.container.network.element_codec import ElementCodec, estimated_bytes, estimated_bytes_of_each
from yarrow.runtime.data.elements import RowBatch
from yarrow.runtime.data.errors import SerializationError
from yarrow.runtime.data.serializers.serializers import serializer_for

FIELDS = [Types.STRING(), Types.INT()]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("rows", [1, 100])
def test_a_number_beyond_its_width_is_not_sent(named: bool, rows: int) -> None:
    codec = ElementCodec(
        serializer_for(Types.ROW_NAMED(["name", "count"], FIELDS) if named else Types.TUPLE(FIELDS))
    )

    def row(name: str, count: int) -> Row | tuple[str, int]:
        return Row(name=name, count=count) if named else (name, count)

    sent = [row("a", 7)] * rows
    frame, parts, flags = codec.encode_batch(RowBatch(sent))
    received = codec.decode(frame, b"".join(parts), rows, flags)
    assert isinstance(received, RowBatch)
    assert received.rows == sent
    with pytest.raises(
        SerializationError,
        match=rf"field {'count' if named else 1} of row {rows}: expected an int of 32 bits .* got int 1099511627776",
    ):
        codec.encode_batch(RowBatch([*sent, row("a", 1 << 40)]))


class Raising:
    def __sizeof__(self) -> int:
        raise ValueError("no size")


class Text:
    def __sizeof__(self) -> Any:
        return "large"


class Negative:
    def __sizeof__(self) -> int:
        return -1


class OddTuple(tuple[Any, ...]):
    def __getitem__(self, item: Any) -> Any:
        raise LookupError(item)

    def __iter__(self) -> Any:
        raise LookupError


class OddList(list[Any]):
    def __getitem__(self, item: Any) -> Any:
        raise LookupError(item)


class OddDict(dict[Any, Any]):
    def __len__(self) -> int:
        raise LookupError


ODD_ROWS = [
    (int, 1),
    [Raising],
    Raising(),
    (Raising(), 1),
    [Text(), Negative()],
    Text,
    Negative(),
    OddTuple([1]),
    OddList([1, 2]),
    OddDict(a=1),
    {"a": Raising()},
]


@pytest.mark.parametrize("row", ODD_ROWS, ids=lambda row: type(row).__name__)
def test_an_estimate_of_a_size_never_raises(row: Any) -> None:
    assert 0 < estimated_bytes([row] * 3) < 10_000
    assert estimated_bytes([row] * 3) == 3 * estimated_bytes([row])


class Unhashable(type):
    """Classes without a hash."""

    __hash__ = None  # type: ignore[assignment]


class OfUnhashable(metaclass=Unhashable):
    pass


@pytest.mark.parametrize(
    "rows",
    [[], range(5), [0, 1 << 70, 1.5, "text", b"b", None, True], [(1, "a"), [2], {}], [OfUnhashable(), 1]],
)
def test_sizes_of_rows_are_those_of_each(rows: Sequence[Any]) -> None:
    assert estimated_bytes_of_each(rows) == sum(estimated_bytes([row]) for row in rows)
