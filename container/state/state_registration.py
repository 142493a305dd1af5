"""StateRegistration: one named keyed state as a program, or an operator itself, declares it.

Owner: none (values).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.ttl import TimeToLive
from yarrow.runtime.snapshot.handles import StateKind


@dataclass(frozen=True, slots=True)
class StateRegistration:
    """One named state as the program declares it."""

    name: str
    kind: StateKind
    #: Type of the value, the element or the map's values; None = not declared.
    value_type: TypeInformation | None
    map_key_type: TypeInformation | None = None
    ttl: TimeToLive | None = field(default=None, compare=False)
    #: True for tables by window: a map of windows that the backend keeps by window and not by key.
    by_window: bool = False

    def __str__(self) -> str:
        if self.kind is StateKind.MAP:
            by_window = ", by window" if self.by_window else ""
            return f"{self.kind} state of {self.map_key_type} to {self.value_type}{by_window}"
        return (
            f"{self.kind} state of {self.value_type if self.value_type is not None else 'no declared type'}"
        )
