"""The tests that docs/testing.md shows, run as a reader runs them; those on a cluster run beside the other clusters."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def documented() -> dict[str, Callable[[], Any]]:
    """The tests of the page that need no cluster, by name."""
    names: dict[str, Any] = {"__name__": "documented_tests"}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    return {
        name: test
        for name, test in names.items()
        if name.startswith("test_") and not test.__code__.co_argcount
    }


@pytest.mark.parametrize("name", documented())
def test_a_documented_test_holds(name: str) -> None:
    documented()[name]()


def test_the_page_shows_tests_of_all_kinds() -> None:
    assert len(documented()) >= 6
