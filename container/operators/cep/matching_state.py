"""MatchingState: the partial matches of all keys in keyed state, and the pattern that they belong to.

Owner: the task thread. A key without partial matches has no value. A restore refuses partial matches of another
pattern, whose states would mean something else. Must not know conditions or time.
"""

from __future__ import annotations

from typing import Any, Final

from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern_table import PatternTable
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.cep.key_values import KeyValues
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.errors import InvalidProgramError

#: Names of the states.
PARTIAL_MATCHES: Final = "_pattern_partial_matches"
PATTERN: Final = "_pattern"


class MatchingState:
    """The partial matches of one operator's subtask."""

    def __init__(
        self, context: OperatorContext, row_type: TypeInformation | None, table: PatternTable
    ) -> None:
        """Raises InvalidProgramError if the restored partial matches are those of another pattern."""
        self._values = KeyValues(context.state, PARTIAL_MATCHES, _stored_type(row_type))
        self._fingerprint = table.fingerprint
        self._pattern = context.operator_state.union_list_state(ListStateDescriptor(PATTERN, Types.STRING()))
        for stored in self._pattern.get():
            if stored != self._fingerprint:
                raise InvalidProgramError(
                    f"operator '{context.descriptor.name}': the restored partial matches belong to another pattern,"
                    f" with the steps {stored.partition(':')[0]}. Only conditions, time limits and functions may change"
                    " over a savepoint. Give the operator another uid to begin anew"
                )

    def get(self, key: Any) -> PartialMatches | None:
        """The partial matches of a raw key, to be changed in place and put again; None if there are none."""
        found = self._values.get(key)
        return None if found is None else PartialMatches(*found)

    def put(self, key: Any, matches: PartialMatches) -> None:
        """Keeps what a raw key has now."""
        if matches.is_empty:
            self._values.remove(key)
        else:
            self._values.put(key, tuple(matches))

    def store(self) -> None:
        """Puts the pattern into the state of a snapshot."""
        self._pattern.update([self._fingerprint])


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
