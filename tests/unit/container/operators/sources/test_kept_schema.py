"""The schemas of a source in its state: kept where the program follows a subject, told where it has changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.common import Types
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.kept_schema import KeptSchema
from yarrow.container.operators.sources.kept_schema import with_kept_schemas
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.datastream.connectors.base import Boundedness, Source
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.snapshot.handles import OperatorStateHandle

FIRST = KeptSchema("orders", "version 1", "long")
LATEST = KeptSchema("orders", "version 2", "string")
SAME_ROWS = KeptSchema("orders", "version 3", "long again")


class OfSchemas(Source[Any, Any]):
    """Reads rows of the type that its schemas name."""

    def __init__(self, kept: Mapping[str, KeptSchema]) -> None:
        self.kept = dict(kept)

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        raise NotImplementedError

    def create_reader(self, context: Any) -> Any:
        raise NotImplementedError

    def produced_type(self) -> TypeInformation:
        return Types.STRING() if LATEST in self.kept.values() else Types.LONG()

    def kept_schemas(self) -> Mapping[str, KeptSchema]:
        return self.kept

    def with_kept_schemas(self, kept: Mapping[str, KeptSchema]) -> OfSchemas:
        assert kept and kept.keys() <= self.kept.keys()
        return OfSchemas({**self.kept, **kept})


State = tuple[OperatorStateHandle, ...]


def opened_at(own: Mapping[str, KeptSchema], restored: State = ()) -> tuple[Mapping[str, KeptSchema], State]:
    """The schemas by which a source reads, by place, and the state of its next snapshot."""
    backend = OperatorStateBackend("orders", restored, read_inline)
    context: Any = SimpleNamespace(operator_state=backend, environment=SimpleNamespace(subtask=0))
    source = with_kept_schemas(OfSchemas(own), "orders", context)
    return source.kept_schemas(), backend.snapshot(1).write(MemoryOutput())


def opened(kept: KeptSchema | None, restored: State = ()) -> tuple[KeptSchema | None, State]:
    """The schema by which a source with one place reads, and the state of its next snapshot."""
    found, state = opened_at({} if kept is None else {"": kept}, restored)
    return found.get(""), state


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


def test_each_place_of_a_source_keeps_its_own_schema() -> None:
    """Two places follow one subject, and one of them began later."""
    _, state = opened_at({"key": FIRST, "value": SAME_ROWS})
    newest = KeptSchema("orders", "version 4", "long once more")
    found, state = opened_at({"key": newest, "value": newest, "new": newest}, state)
    assert found == {"key": FIRST, "value": SAME_ROWS, "new": newest}
    # A place that the program has left out is forgotten.
    found, state = opened_at({"value": newest}, state)
    assert found == {"value": SAME_ROWS}
    assert opened_at({"key": newest}, state)[0] == {"key": newest}


def test_an_old_snapshot_tells_no_place() -> None:
    _, state = opened(FIRST)
    customers = KeptSchema("customers", "version 1", "long of customers")
    found, _ = opened_at({"0": customers, "1": SAME_ROWS}, state)
    assert found == {"0": customers, "1": FIRST}
    # The subject does not say which of the two it was.
    found, _ = opened_at({"0": SAME_ROWS, "1": SAME_ROWS}, state)
    assert found == {"0": SAME_ROWS, "1": SAME_ROWS}


def test_rows_of_another_type_name_each_place() -> None:
    _, state = opened_at({"0": FIRST, "1": SAME_ROWS})
    with pytest.raises(
        InvalidProgramError, match=r"began with version 1 and version 3, .* version 2 and version 2, "
    ):
        opened_at({"0": LATEST, "1": LATEST}, state)
