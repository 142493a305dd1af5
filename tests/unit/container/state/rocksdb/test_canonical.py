"""The canonical form of what a backend on disk stores."""

from __future__ import annotations

import gc

from yarrow.container.state.heap_sections import FrozenSection
from yarrow.container.state.rocksdb.canonical import runs_of_section
from yarrow.container.state.state_registration import StateRegistration
from yarrow.runtime.snapshot.handles import StateKind
from yarrow.runtime.snapshot.key_group_form import StateForm
from yarrow.runtime.snapshot.value_serializers import value_serializer


def test_the_lists_of_a_piece_of_a_section_are_gone_while_its_runs_are_written() -> None:
    size = 3457
    pieces = ((list(range(size)), [0] * size) for _ in range(2))
    section = FrozenSection(StateRegistration("s", StateKind.VALUE, None), pieces)
    form = StateForm("s", StateKind.VALUE, value_serializer(None, "s", "op"))
    runs = runs_of_section(form, 0, section, 7)
    next(runs)
    assert not [each for each in gc.get_objects() if type(each) is list and len(each) == size]
