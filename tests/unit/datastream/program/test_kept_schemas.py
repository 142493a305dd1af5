"""Which schemas of a snapshot a source goes on with: those of its operator, and before its id is known, of its name."""

from __future__ import annotations

import pytest

from yarrow.common.values.kept_schema import KeptSchema
from yarrow.datastream.program.kept_schemas import StoredSchemas, schemas_by_name, schemas_of_operator
from yarrow.runtime.graph.translation.operator_ids import operator_id_of_uid

FIRST, SECOND, LATEST = (KeptSchema("orders", f"version {number}", str(number)) for number in (1, 2, 3))
CUSTOMERS = KeptSchema("customers", "version 1", "customers")
OWN = {"": LATEST}


def stored(uid: str, name: str, **schemas: KeptSchema) -> StoredSchemas:
    by_place = {"" if place == "only" else place: schema for place, schema in schemas.items()}
    return StoredSchemas(operator_id_of_uid(uid), name, by_place)


def test_the_id_of_the_operator_decides() -> None:
    snapshot = [
        stored("a", "orders", only=FIRST),
        stored("b", "orders", only=SECOND),
        stored("c", "x", only=CUSTOMERS),
    ]
    assert schemas_of_operator(OWN, operator_id_of_uid("a"), snapshot) == {"": FIRST}
    assert schemas_of_operator(OWN, operator_id_of_uid("b"), snapshot) == {"": SECOND}
    # Another subject is a decision of the program, and a new source begins by its own schema.
    assert schemas_of_operator(OWN, operator_id_of_uid("c"), snapshot) == {}
    assert schemas_of_operator(OWN, operator_id_of_uid("d"), snapshot) == {}


def test_places_of_one_source_are_kept_apart() -> None:
    snapshot = [stored("a", "orders", key=FIRST, value=SECOND)]
    own = {"key": LATEST, "value": LATEST, "other": LATEST}
    assert schemas_of_operator(own, operator_id_of_uid("a"), snapshot) == {"key": FIRST, "value": SECOND}
    assert schemas_by_name(own, "orders", snapshot) == {"key": FIRST, "value": SECOND}


@pytest.mark.parametrize(
    ("name", "found"), [("orders", {"": FIRST}), ("more orders", {"": SECOND}), ("new", {}), ("twice", {})]
)
def test_before_the_id_is_known_the_name_tells(name: str, found: dict[str, KeptSchema]) -> None:
    snapshot = [
        stored("a", "orders", only=FIRST),
        stored("b", "more orders", only=SECOND),
        stored("c", "twice", only=FIRST),
        stored("d", "twice", only=SECOND),
    ]
    assert schemas_by_name(OWN, name, snapshot) == found


def test_a_renamed_source_is_found_by_its_subject() -> None:
    snapshot = [stored("a", "orders", only=FIRST), stored("c", "customers", only=CUSTOMERS)]
    assert schemas_by_name(OWN, "renamed", snapshot) == {"": FIRST}
    assert schemas_by_name({"": FIRST}, "renamed", snapshot) == {}, "it reads by this one already"
