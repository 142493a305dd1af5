"""Text that ships speaks of no one machine, and its links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import PACKAGES, ROOT

FOLDERS = (*PACKAGES, "docs", "conf", "bench", "examples", "scripts", "tests", ".ci")
SUFFIXES = {"", ".md", ".py", ".yaml", ".yml", ".toml", ".json", ".txt", ".sh"}

#: Home folders, and the folder of this very checkout.
MACHINE_PATHS = re.compile(rf"/(?:home|Users)/\w+|/root/|{re.escape(str(ROOT))}(?![\w-])")

LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")


def _texts() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.suffix in {".md", ".toml"})
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path


def test_no_text_names_a_machine() -> None:
    named = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in _texts()
        if path != Path(__file__).resolve()
        if (found := MACHINE_PATHS.search(path.read_text(encoding="utf-8", errors="replace")))
    ]
    assert not named


DOCUMENTS = [path for path in _texts() if path.suffix == ".md"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_documents_lead_somewhere(path: Path) -> None:
    dead = [target for target in LINK.findall(path.read_text()) if not (path.parent / target).exists()]
    assert not dead
