"""docs/config.md and conf/config.yaml agree with the options."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.pages import config_page
from yarrow.runtime.config.files import load_file, parse_legacy
from yarrow.runtime.config.known_keys import KeyKind, kind_of
from yarrow.runtime.config.options import ALL_OPTIONS, OPTION_OF_NAME
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import validate

ROOT = Path(__file__).resolve().parents[4]
SHIPPED = ROOT / "conf" / "config.yaml"
_COMMENTED = re.compile(r"^# ([a-z][A-Za-z-]*(?:\.[A-Za-z-]+)+: \S.*)$", re.MULTILINE)


def commented_settings() -> Settings:
    return parse_legacy("\n".join(_COMMENTED.findall(SHIPPED.read_text(encoding="utf-8"))), str(SHIPPED))


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    assert page == config_page.render(), "docs/config.md is out of date: run python -m tests.support.pages"


def test_the_page_has_every_option_once() -> None:
    page = config_page.render()
    for option in ALL_OPTIONS:
        assert page.count(f"\n| `{option.key}`") == 1


def test_every_row_has_four_cells() -> None:
    tables = config_page.render().partition("## ")[2].partition("## Keys with a free ending")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| `")]
    assert len(rows) == len(ALL_OPTIONS)
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 5, row


def test_the_shipped_file_is_valid_and_leaves_the_embedded_cluster_its_choices() -> None:
    settings = load_file(SHIPPED)
    validate(settings)
    assert len(settings) > 4
    for key in ("parallelism.default", "taskmanager.numberOfTaskSlots", "rest.port", "rest.bind-port"):
        assert not settings.is_set(OPTION_OF_NAME[key])


def test_the_commented_lines_of_the_shipped_file_are_valid_too() -> None:
    settings = commented_settings()
    assert len(settings) > 15
    assert [key for key in settings if kind_of(key) is not KeyKind.OPTION] == []
    validate(load_file(SHIPPED).overlay(settings))
