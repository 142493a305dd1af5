"""What errors tell of a schema, where the registry does not answer."""

from __future__ import annotations

from typing import Any

from yarrow.datastream.formats.registry.errors import SchemaRegistryError
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.datastream.formats.registry.writers import WriterSchemas
from yarrow.runtime.common.clock import ManualClock


class Silent:
    asked = 0

    def places(self, schema_id: int) -> Any:
        self.asked += 1
        raise SchemaRegistryError("nobody answers")


def test_a_registry_that_is_silent_is_not_asked_for_each_damaged_message() -> None:
    """Each question lasts until the retries end, and the task waits meanwhile."""
    clock = ManualClock()
    schemas = WriterSchemas(RegistrySettings.of("http://localhost:1"), clock)
    registry = Silent()
    schemas.__dict__["client"] = registry
    for schema_id in (7, 8, 7):
        assert schemas.shown(schema_id) == f"schema {schema_id} (the registry does not tell its subject)"
    assert registry.asked == 1
    clock.advance(60)
    schemas.shown(7)
    assert registry.asked == 2
