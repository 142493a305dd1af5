"""The values of one row in the order of a schema's fields, for all formats that write by position.

Owner: the calling thread; pure. It must not look at the values themselves: the format checks their types.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from yarrow.common.types import Row, own_names
from yarrow.datastream.connectors.file_format import FileFormatError

_borne_names = attrgetter("_fields")


def values_in_order(row: Any, names: tuple[str, ...]) -> Sequence[Any]:
    """Return the values of a Row, dict, tuple or list in the order of these field names.

    The names of a Row decide where it has those of the schema. A Row whose names are all others is taken by position,
    as PyFlink takes it, and so is a Row without names. A field that a dict lacks is None. Raises FileFormatError for
    a Row that has only some of the names, or further ones beside them, and for anything that is no row.
    """
    if isinstance(row, Row):
        own = own_names(row)
        if own is None or own == names:
            return row._values
        shared = set(own) & set(names)
        if not shared:
            return row._values
        if len(shared) != len(names) or len(own) != len(names):
            raise FileFormatError(
                f"{row!r} has the fields {list(own)}, and the schema has {list(names)}: make Rows with all these names,"
                " or without names"
            )
        return row.get_fields_by_names(names)
    if isinstance(row, dict):
        return [row.get(name) for name in names]
    if isinstance(row, tuple | list):
        return row
    raise FileFormatError(
        f"a Row, tuple, list or dict with the fields {list(names)} is expected, not {row!r}"
    )


def stand_in_order(rows: Sequence[Row], names: tuple[str, ...]) -> bool:
    """True if each of these Rows has no names, or exactly these names in this order."""
    return all(type(borne) is not tuple or borne == names for borne in set(map(_borne_names, rows)))
