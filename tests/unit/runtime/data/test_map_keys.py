"""Keys of maps are shown as their declared type has them, though a dict holds equal ones of another class."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.runtime.data.map_keys import declared_map_key, map_key, shown_as


@pytest.mark.parametrize(
    "declared, held, shown",
    [
        (Types.BOOLEAN(), 1, True),
        (Types.DOUBLE(), 3, 3.0),
        (Types.FLOAT(), 0, 0.0),
        (Types.DOUBLE(), 2.5, 2.5),
        (Types.BIG_DEC(), 3, Decimal(3)),
        (Types.TUPLE([Types.DOUBLE(), Types.LONG()]), (3, 3), (3.0, 3)),
        (Types.TUPLE([Types.TUPLE([Types.DOUBLE()])]), ((3,),), ((3.0,),)),
        # What is not exact as a float, or too large for one, is left to be refused by name.
        (Types.DOUBLE(), 2**53 + 1, 2**53 + 1),
        (Types.DOUBLE(), 10**400, 10**400),
        (Types.DOUBLE(), "text", "text"),
        (Types.DOUBLE(), None, None),
    ],
    ids=str,
)
def test_a_key_is_of_its_declared_type(declared: TypeInformation, held: Any, shown: Any) -> None:
    assert repr(shown_as(declared)(held)) == repr(shown)


def test_fields_of_rows_are_too() -> None:
    declared = Types.ROW_NAMED(["price", "open"], [Types.DOUBLE(), Types.BOOLEAN()])
    row = Row(price=3.0, open=True)
    assert repr(shown_as(declared)(map_key(row))) == repr(row)


def test_other_types_need_nothing() -> None:
    for declared in (None, Types.LONG(), Types.STRING(), Types.TUPLE([Types.LONG(), Types.STRING()])):
        assert declared_map_key(declared) is None
