"""Rows that pass by reference: the first ones are pickled, so that a program fails in one worker as in several."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from yarrow.common import TypeInformation, Types
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.output_channel import LocalOutputChannel
from yarrow.runtime.data.elements import RowBatch
from yarrow.runtime.data.errors import SerializationError, UnpicklableRowError
from yarrow.runtime.data.serializers.serializers import serializer_for

LOCK = threading.Lock()
PICKLED = Types.PICKLED_BYTE_ARRAY()


class Counted:
    pickled = 0

    def __reduce__(self) -> Any:
        Counted.pickled += 1
        return Counted, ()


def channel(type_info: TypeInformation | None) -> LocalOutputChannel:
    codec = ElementCodec(serializer_for(type_info), producer="Locking")
    local = LocalOutputChannel(lambda: None, codec=codec)
    local.attach(InputChannel(codec, 1000, 1 << 40, lambda: None))
    return local


@pytest.mark.parametrize(
    ("type_info", "row", "place"),
    [
        (None, (1, LOCK), r"member \[1\]"),
        (Types.TUPLE([Types.INT(), PICKLED]), (1, LOCK), "field 1 of row 0"),
        (Types.ROW_NAMED(["l"], [Types.LIST(PICKLED)]), None, ""),
        (Types.MAP(Types.STRING(), PICKLED), {"a": LOCK}, "row 0"),
    ],
)
def test_a_row_that_cannot_be_pickled_fails_and_names_the_operator(
    type_info: TypeInformation | None, row: Any, place: str
) -> None:
    local = channel(type_info)
    if row is None:
        local.send_batch(RowBatch([None]))
        return
    with pytest.raises(SerializationError, match=f"operator 'Locking': .*{place}.*lock"):
        local.send_batch(RowBatch([row]))


def test_only_the_first_rows_are_tried() -> None:
    Counted.pickled = 0
    local = channel(None)
    local.send_batch(RowBatch([]))
    for _ in range(10):
        local.send_batch(RowBatch([Counted() for _ in range(5)]))
    assert Counted.pickled == 16
    local.send_batch(RowBatch([LOCK]))


def test_large_rows_are_tried_one_by_one() -> None:
    local = channel(None)
    local.send_batch(RowBatch([bytes(3 << 20), bytes(3 << 20), LOCK]))
    with pytest.raises(UnpicklableRowError):
        local.send_batch(RowBatch([LOCK]))


def test_rows_of_a_declared_type_without_pickles_are_not_tried() -> None:
    channel(Types.TUPLE([Types.INT()])).send_batch(RowBatch([("not a number",)]))
