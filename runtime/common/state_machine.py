"""StateMachine: the helper for all state machines: an enum, a transition table, and a checked `transition`.

Owner: the endpoint that owns the entity. Must not do I/O besides logging. docs/state-machines.md is made of
the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Generic, TypeVar

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError

S = TypeVar("S", bound=Enum)
_log = logging.getLogger(__name__)


class IllegalTransitionError(YarrowError):
    """A state machine has no such edge in its table."""


def transitions(table: Mapping[S, Iterable[S]]) -> Mapping[S, frozenset[S]]:
    """Return a transition table that nobody can change: for each state the states that may follow it."""
    return MappingProxyType({state: frozenset(following) for state, following in table.items()})


class StateMachine(Generic[S]):
    """The state of one entity: it follows only `transitions`, and records when each state was entered."""

    def __init__(
        self,
        entity: str,
        initial: S,
        transitions: Mapping[S, frozenset[S]],
        clock: Clock,
        on_change: Callable[[S, S], None] | None = None,
    ) -> None:
        self._entity = entity
        self._state = initial
        self._transitions = transitions
        self._clock = clock
        self._on_change = on_change
        #: Epoch ms at which each state was last entered; states never entered are absent.
        self.timestamps: dict[S, int] = {initial: clock.epoch_ms()}

    @property
    def state(self) -> S:
        """The present state."""
        return self._state

    @property
    def is_terminal(self) -> bool:
        """True when no edge leaves the present state."""
        return not self._transitions[self._state]

    def can(self, target: S) -> bool:
        """True when the table has an edge from the present state to `target`."""
        return target in self._transitions[self._state]

    def transition(self, target: S, cause: str = "") -> None:
        """Goes to `target`. Raises IllegalTransitionError if the table has no such edge."""
        previous = self._state
        if target not in self._transitions[previous]:
            raise IllegalTransitionError(
                f"{self._entity}: no transition from {previous.name} to {target.name}"
            )
        self._state = target
        self.timestamps[target] = self._clock.epoch_ms()
        _log.debug("%s: %s -> %s%s", self._entity, previous.name, target.name, f" ({cause})" if cause else "")
        if self._on_change is not None:
            self._on_change(previous, target)

    def restore(self, state: S) -> None:
        """Sets the state of a snapshot: no edge is followed, and `on_change` is not called."""
        self._state = state
        self.timestamps.setdefault(state, self._clock.epoch_ms())
