"""SchemaEvolution: the treatment of fields that only the writer's schema has, for every form of messages.

Owner: none; plain values.
"""

from __future__ import annotations

from enum import Enum

from yarrow.runtime.common.errors import InvalidProgramError


class SchemaEvolution(Enum):
    """The treatment of fields that a writer's schema has and the reader's lacks."""

    #: Messages with such a field cannot be read.
    FAIL = "fail"
    #: The reader leaves such fields out.
    KEEP_KNOWN = "keep"
    #: Records get such fields, too.
    ADD_COLUMNS = "add"


def unknown_field(name: str) -> str:
    """Return why FAIL refuses messages of a schema with this field."""
    return f'field {name!r}: the reader\'s schema does not know it, and evolution is "fail"'


def evolution_of(given: str | SchemaEvolution, owner: str) -> SchemaEvolution:
    """Return the treatment that a program names. Raises InvalidProgramError, which names the owner."""
    try:
        return SchemaEvolution(given)
    except ValueError:
        names = ", ".join(f'"{each.value}"' for each in SchemaEvolution)
        raise InvalidProgramError(f"{owner}: evolution is {names}, not {given!r}") from None


def evolution_of_rows(given: str | SchemaEvolution, owner: str) -> SchemaEvolution:
    """Return the treatment for a reader of Rows. Raises InvalidProgramError, also for ADD_COLUMNS."""
    chosen = evolution_of(given, owner)
    if chosen is SchemaEvolution.ADD_COLUMNS:
        raise InvalidProgramError(
            f"{owner}: Rows have the fields of their type, so columns cannot be added to them; take for_generic, or"
            ' evolution="keep"'
        )
    return chosen
