"""Parts that take longest are begun first, and the tests of each stay in their order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import LONG_FILES
from tests.support.longest_first import put_longest_first
from tests.yarn.parts import LONG_PARTS, part_of

ROOT = Path(__file__).resolve().parents[3]


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def ordered(*nodeids: str, known: dict[str, float]) -> list[str]:
    items: list[Any] = [SimpleNamespace(nodeid=nodeid) for nodeid in nodeids]
    put_longest_first(items, file_of, known, usual=1.0)
    return [item.nodeid for item in items]


def test_known_parts_count_by_their_seconds_and_others_by_their_tests() -> None:
    found = ordered("a::1", "b::2", "b::1", "c::1", "d::1", "d::2", "d::3", known={"c": 2.5})
    assert found == ["d::1", "d::2", "d::3", "c::1", "b::2", "b::1", "a::1"]


def test_parts_that_take_as_long_are_not_mixed() -> None:
    assert ordered("b::1", "a::1", "b::2", "a::2", known={}) == ["a::1", "a::2", "b::1", "b::2"]


@pytest.mark.parametrize("part", [*LONG_FILES, *LONG_PARTS])
def test_every_part_that_is_known_to_be_long_is_there(part: str) -> None:
    assert (ROOT / file_of(part)).exists()
    if part in LONG_PARTS:
        assert part_of(part if "::" in part or part.endswith(".py") else f"{part}test_masters.py") == part
