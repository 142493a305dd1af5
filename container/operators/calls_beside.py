"""CallsBeside: calls of an operator's function on threads beside that of its task, as a look at a stack finds them.

Owner: none. Must not know how the calls are made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple


class CallingOperator(NamedTuple):
    """The operator that wants the calls."""

    operator_name: str
    #: The attempt of its task.
    attempt: str


class CallsBeside(ABC):
    """What makes such calls; a method of it is on the stack of each."""

    def __init__(self, caller: CallingOperator) -> None:
        self.caller = caller

    @abstractmethod
    def argument_in(self, held: Mapping[str, Any]) -> Any:
        """What the function has got, among the variables of such a method; None = it has got nothing."""
