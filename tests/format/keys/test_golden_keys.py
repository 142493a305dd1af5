"""Key encodings, hashes and key groups of version 1, written down once: a savepoint depends on every byte."""

from __future__ import annotations

import datetime as dt
import enum
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.stored_keys import EnumKey, RecordKey, decode_key, inspect_key, key_group
from yarrow.common.types import Row, positional_row
from yarrow.runtime.data.key_groups import (
    key_group_range_for_operator_index,
    key_hash,
)
from yarrow.runtime.data.keys import NAN, canonicalize, encode_key
from yarrow.runtime.graph.translation.job_graph_generator import derived_max_parallelism

FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True)
class Trip:
    origin: str
    carrier: str


class Colour(enum.Enum):
    RED = 1


# Stored under a module name that does not depend on where the tests lie.
Trip.__module__ = "golden"
Colour.__module__ = "golden"

BUILD: Final[dict[str, Callable[[Any], Any]]] = {
    "none": lambda value: None,
    "bool": bool,
    "int": int,
    "float": float.fromhex,
    "nan": lambda value: float("nan"),
    "decimal": Decimal,
    "str": str,
    "bytes": bytes.fromhex,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
    "uuid": uuid.UUID,
    "tuple": lambda value: tuple([build(item) for item in value]),
    "row": lambda value: Row(*[build(item) for item in value]),
    "named_row": lambda value: Row(**{name: build(item) for name, item in value}),
    "record": lambda value: Trip(*value),
    "enum": lambda value: Colour[value],
    "duration": lambda value: dt.timedelta(microseconds=int(value)),
    "frozenset": lambda value: frozenset(build(item) for item in value),
    "range": lambda value: range(*map(int, value)),
}


def build(vector: Any) -> Any:
    """The key that a vector describes as [type, value]."""
    kind, value = vector
    return BUILD[kind](value)


def _load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text("utf-8"))


VECTORS: Final[list[dict[str, Any]]] = _load("keys_v1.json")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: json.dumps(vector["key"])[:40])
def test_key_vectors(vector: dict[str, Any]) -> None:
    key = canonicalize(build(vector["key"]))
    encoded = bytes.fromhex(vector["encoding"])
    assert encode_key(key) == encoded
    assert f"{key_hash(encoded):016x}" == vector["hash"]
    assert key_group(encoded, 128) == vector["group_of_128"]
    assert key_group(encoded, 32768) == vector["group_of_32768"]
    if type(key) is Trip:
        expected = (("origin", key.origin), ("carrier", key.carrier))
        assert inspect_key(encoded) == RecordKey("golden:Trip", expected)
    elif type(key) is Colour:
        assert inspect_key(encoded) == EnumKey("golden:Colour", "RED")
    else:
        decoded = decode_key(encoded)
        assert decoded == key or (key is NAN and decoded is NAN)
        assert type(decoded) is type(key)


def test_every_tag_has_a_vector() -> None:
    assert {int(vector["encoding"][2:4], 16) for vector in VECTORS} == set(range(0x14))


def test_default_max_parallelism_vectors() -> None:
    for parallelism, expected in _load("max_parallelism_v1.json"):
        assert derived_max_parallelism(parallelism) == expected


def test_key_group_range_vectors() -> None:
    for max_parallelism, parallelism, ranges in _load("key_group_ranges_v1.json"):
        found = [
            list(key_group_range_for_operator_index(max_parallelism, parallelism, index))
            for index in range(parallelism)
        ]
        assert found == ranges


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["key"][0] == "row"], ids=str)
def test_a_row_that_bears_positional_names_is_the_key_of_the_row_without(vector: dict[str, Any]) -> None:
    row = positional_row(list(build(vector["key"])))
    assert row.get_field_names() == [f"f{position}" for position in range(len(row))]
    encoded = encode_key(canonicalize(row))
    assert encoded == bytes.fromhex(vector["encoding"])
    assert {canonicalize(row): 1}[build(vector["key"])] == {canonicalize(build(vector["key"])): 1}[row] == 1
