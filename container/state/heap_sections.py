"""HeapSections: keyed state outside of a backend's tables that is snapshotted and restored with them.

Owner: the task thread; the snapshot thread reads the results of `freeze`. Timers are such a section, and so
are the arrays of columnar aggregates. Backends on disk embed a HeapSections too: sections are always stored
in the canonical form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from yarrow.container.state.backend import KeyedBackendContext, KeyedSection, Timer, TimerSection
from yarrow.container.state.errors import StateConflictError
from yarrow.container.state.frozen_shard import PIECE
from yarrow.container.state.state_registration import StateRegistration
from yarrow.container.state.timers import FrozenTimers
from yarrow.runtime.snapshot.handles import StateKind
from yarrow.runtime.snapshot.key_group_form import Contents, TimerValues
from yarrow.runtime.snapshot.restored_state import RestoredKeyedState


class FrozenSection(msgspec.Struct, frozen=True):
    """The content of a section at a cut."""

    registration: StateRegistration
    #: Keys and values, a bounded number at a time; iterated once.
    pieces: Iterable[tuple[list[Any], Contents]]


class HeapSections:
    """The sections of one operator's subtask."""

    def __init__(self, context: KeyedBackendContext, restored: RestoredKeyedState) -> None:
        self._context = context
        self._restored = restored
        self._timers: dict[str, TimerSection] = {}
        self._sections: dict[str, KeyedSection] = {}

    def refuse_name(self, name: str) -> None:
        """Raises StateConflictError if a section has the name."""
        if name in self._timers or name in self._sections:
            raise StateConflictError(
                f"operator '{self._context.operator_name}': the state name '{name}' is taken by the operator itself; "
                "give your state another name"
            )

    def register_timers(self, name: str, section: TimerSection) -> None:
        """See KeyedStateBackend."""
        self.refuse_name(name)
        self._timers[name] = section
        section.restore_timers(Timer(*timer) for timer in self._restored.take_timers(name))

    def register(self, name: str, section: KeyedSection) -> None:
        """See KeyedStateBackend.register_section."""
        self.refuse_name(name)
        self._sections[name] = section
        runs = self._restored.take(name, StateKind.VALUE, section.value_type)
        section.restore_entries(entry for run in runs for entry in zip(run.keys, run.values, strict=True))

    def freeze(self) -> list[FrozenSection]:
        """Freezes all sections; short."""
        frozen = [
            FrozenSection(_timer_registration(name), _timer_pieces(section.snapshot_timers()))
            for name, section in self._timers.items()
        ]
        return frozen + [
            FrozenSection(_section_registration(name, section), section.freeze_entries())
            for name, section in self._sections.items()
        ]

    @property
    def entries(self) -> int:
        """Number of keys in the sections that count them; timers have a metric of their own."""
        return sum(section.entry_count for section in self._sections.values())


def _timer_registration(name: str) -> StateRegistration:
    return StateRegistration(name, StateKind.TIMERS, None)


def _section_registration(name: str, section: KeyedSection) -> StateRegistration:
    return StateRegistration(name, StateKind.VALUE, section.value_type)


def _timer_pieces(timers: Iterable[Timer]) -> Iterator[tuple[list[Any], TimerValues]]:
    if isinstance(timers, FrozenTimers):
        yield from timers.pieces(2 * PIECE)
        return
    remaining = iter(timers)
    while piece := list(islice(remaining, PIECE)):
        times = np.array([timer.timestamp for timer in piece], dtype=np.int64)
        yield [timer.key for timer in piece], TimerValues(times, [timer.namespace for timer in piece])
