"""MatchingState: the partial matches of all keys in keyed state, and the pattern that they belong to.

Owner: the task thread. A key without partial matches has no value. A restore refuses partial matches of another
pattern, whose states would mean something else. Must not know conditions or time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern_table import PatternTable
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.cep.key_values import KeyValues
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.errors import InvalidProgramError

#: Names of the states.
PARTIAL_MATCHES: Final = "_pattern_partial_matches"
PATTERN: Final = "_pattern"


#: Where the partial matches of a key stand: (canonical key, dict to write to, the five lists or MISSING). The lists
#: change in place.
KeptMatches = tuple[Any, dict[Any, Any], Any]


def _other_pattern(operator: str, stored: str, table: PatternTable) -> InvalidProgramError:
    """The error for restored partial matches of another pattern; `stored` is its fingerprint."""
    was, now = stored.partition(":")[0], "|".join(table.steps)
    change = (
        "and this one has other ways from one to the next (next, followed_by) or other numbers of records"
        if was == now
        else f"and this one has the steps {now}"
    )
    return InvalidProgramError(
        f"operator '{operator}': the restored partial matches belong to another pattern, with the steps {was},"
        f" {change}. Only conditions, time limits and functions may change over a savepoint. Declare the steps as"
        " they were, or give the operator another uid to begin anew"
    )


class MatchingState:
    """The partial matches of one operator's subtask."""

    def __init__(
        self, context: OperatorContext, row_type: TypeInformation | None, table: PatternTable
    ) -> None:
        """Raises InvalidProgramError if the restored partial matches are those of another pattern."""
        self._values = KeyValues(context.state, PARTIAL_MATCHES, _stored_type(row_type))
        # Records, cells and runs never change: only their lists do.
        self._values.table.copy_by(_copied)
        self._keys = partial(context.state.state_keys, PARTIAL_MATCHES)
        self._fingerprint = table.fingerprint
        self._pattern = context.operator_state.union_list_state(ListStateDescriptor(PATTERN, Types.STRING()))
        for stored in self._pattern.get():
            if stored != self._fingerprint:
                raise _other_pattern(context.descriptor.name, stored, table)

    def find(self, key: Any) -> tuple[KeptMatches, PartialMatches | None]:
        """The place of a raw key, and its partial matches to be changed and kept again; None if there are none."""
        place = self._values.find(key)
        found = place[2]
        return place, None if found is MISSING else PartialMatches._make(found)

    @property
    def table(self) -> ValueTable:
        """The five lists of each canonical key."""
        return self._values.table

    def all_keys(self) -> Iterable[Any]:
        """The canonical keys with partial matches."""
        return self._keys()

    def any_complete(self) -> bool:
        """Whether a complete match waits for partial ones: the program may have had another skip strategy."""
        return any(found is not None and found.complete for _, found in map(self.at, self.all_keys()))

    def at(self, key: Any) -> tuple[KeptMatches, PartialMatches | None]:
        """The same as `find` for a canonical key."""
        place = self._values.table.find(key)
        found = place[2]
        return place, None if found is MISSING else PartialMatches._make(found)

    def remove(self, key: Any) -> None:
        """Removes what a canonical key has."""
        self._values.remove(key)

    def keep(self, place: KeptMatches, matches: PartialMatches) -> None:
        """Keeps what a key has now; no other key was asked for meanwhile."""
        key, entries, value = place
        if not matches.is_empty:
            entries[key] = tuple(matches) if value is MISSING else value
        elif value is not MISSING:
            self._values.remove(key)

    def store(self) -> None:
        """Puts the pattern into the state of a snapshot."""
        self._pattern.update([self._fingerprint])


def _copied(lists: tuple[list[Any], ...]) -> tuple[list[Any], ...]:
    return tuple([each.copy() for each in lists])


def _stored_type(row_type: TypeInformation | None) -> TypeInformation:
    """The type of PartialMatches as a plain tuple."""
    if row_type is None:
        return Types.PICKLED_BYTE_ARRAY()
    number = Types.LONG()
    three = Types.LIST(Types.TUPLE([number, number, number]))
    return Types.TUPLE(
        [
            Types.LIST(Types.TUPLE([number, row_type])),
            three,
            three,
            Types.LIST(Types.TUPLE([number, number])),
            Types.LIST(number),
        ]
    )
