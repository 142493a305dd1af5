"""The codec of an edge of declared type: the task that sends a row that does not fit fails, not the one that reads."""

from __future__ import annotations

import pytest

from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.container.network.element_codec import ElementCodec
from yarrow.runtime.data.elements import RowBatch
from yarrow.runtime.data.errors import SerializationError
from yarrow.runtime.data.serializers import serializer_for

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
