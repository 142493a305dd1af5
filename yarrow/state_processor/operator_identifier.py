"""OperatorIdentifier: which operator of a savepoint is meant, by its uid or by its id.

Owner: none (frozen values). Must not open savepoints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.graph.translation.operator_ids import operator_id_of_uid
from yarrow.runtime.snapshot.handles import OperatorState
from yarrow.state_processor.errors import StateProcessorError

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class OperatorIdentifier:
    """The name of one operator; a plain text stands for `for_uid` wherever an identifier is taken."""

    operator_id: OperatorID
    uid: str | None = None

    @staticmethod
    def for_uid(uid: str) -> OperatorIdentifier:
        """The operator with that `uid(...)` in its program."""
        return OperatorIdentifier(operator_id_of_uid(uid), uid)

    @staticmethod
    def for_uid_hash(uid_hash: str) -> OperatorIdentifier:
        """The operator with that id: of operators without uid, and of `set_uid_hash`. Raises ValueError."""
        if not _ID.fullmatch(uid_hash.lower()):
            raise ValueError(f"an operator id has 32 hexadecimal digits, not {uid_hash!r}")
        return OperatorIdentifier(OperatorID(uid_hash.lower()))

    @staticmethod
    def of(identifier: OperatorIdentifier | str) -> OperatorIdentifier:
        """The identifier; a text is a uid."""
        return OperatorIdentifier.for_uid(identifier) if isinstance(identifier, str) else identifier

    def __str__(self) -> str:
        return f"uid '{self.uid}'" if self.uid is not None else f"id {self.operator_id}"


def find_operator(
    operators: Iterable[OperatorState], identifier: OperatorIdentifier | str, directory: str
) -> OperatorState:
    """The operator's state. Raises StateProcessorError naming the present operators.

    A text that is no uid of the savepoint may also be an operator id.
    """
    known = list(operators)
    wanted = OperatorIdentifier.of(identifier)
    for operator in known:
        if operator.operator_id == wanted.operator_id or operator.operator_id == identifier:
            return operator
    there = ", ".join(f"'{each.uid}'" if each.uid is not None else each.operator_id for each in known)
    raise StateProcessorError(
        f"{directory}: there is no operator with {wanted}, only {there or 'none at all'}. Name one of these, by its "
        "uid or with OperatorIdentifier.for_uid_hash."
    )
