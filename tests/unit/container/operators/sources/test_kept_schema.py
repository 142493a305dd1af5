"""The schema of a source in its state: kept where the program follows a subject, told where the program has changed."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.common import Types
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.kept_schema import KeptSchema
from yarrow.container.operators.sources.kept_schema import with_kept_schema
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.datastream.connectors.base import Boundedness, Source
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.snapshot.handles import OperatorStateHandle

FIRST = KeptSchema("orders", "version 1", "long")
LATEST = KeptSchema("orders", "version 2", "string")
SAME_ROWS = KeptSchema("orders", "version 3", "long again")


class OfSchema(Source[Any, Any]):
    """Reads rows of the type that its schema names."""

    def __init__(self, kept: KeptSchema | None) -> None:
        self.kept = kept

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        raise NotImplementedError

    def create_reader(self, context: Any) -> Any:
        raise NotImplementedError

    def produced_type(self) -> TypeInformation:
        return Types.STRING() if self.kept is LATEST else Types.LONG()

    def kept_schema(self) -> KeptSchema | None:
        return self.kept

    def with_kept_schema(self, kept: KeptSchema) -> OfSchema:
        return OfSchema(kept)


def opened(
    kept: KeptSchema | None, restored: tuple[OperatorStateHandle, ...] = ()
) -> tuple[KeptSchema | None, tuple[OperatorStateHandle, ...]]:
    """The schema by which a source reads, and the state of its next snapshot."""
    backend = OperatorStateBackend("orders", restored, read_inline)
    context: Any = SimpleNamespace(operator_state=backend, environment=SimpleNamespace(subtask=0))
    source = with_kept_schema(OfSchema(kept), "orders", context)
    return source.kept_schema(), backend.snapshot(1).write(MemoryOutput())


def test_a_source_that_asks_for_nothing_has_no_state() -> None:
    assert opened(None) == (None, ())


def test_a_program_that_follows_a_subject_stays_with_the_first_schema(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found, state = opened(FIRST)
    assert found == FIRST
    for _ in range(2):
        # Also where the client could not look into the snapshot.
        found, state = opened(SAME_ROWS, state)
        assert found == FIRST
    assert caplog.records == []


def test_rows_of_another_type_name_both_versions() -> None:
    _, state = opened(FIRST)
    with pytest.raises(
        InvalidProgramError, match=r"'orders' began with version 1, .* with version 2, whose rows"
    ):
        opened(LATEST, state)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (KeptSchema("", "version 2", "string"), "by version 1 until .* names version 2"),
        (KeptSchema("customers", "version 1", "string"), "by another schema until .* names version 1"),
    ],
)
def test_a_program_that_was_changed_is_told_and_followed(
    caplog: pytest.LogCaptureFixture, own: KeptSchema, told: str
) -> None:
    _, state = opened(FIRST)
    found, state = opened(own, state)
    assert found == own
    (record,) = caplog.records
    assert re.search(told, record.getMessage())
    caplog.clear()
    assert opened(own, state)[0] == own and caplog.records == []
