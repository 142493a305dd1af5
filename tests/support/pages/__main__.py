"""Writes the pages of docs/ that are made from the code: `python -m tests.support.pages`.

Owner: a developer's command. Tests hold each page against the code.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.pages import (
    compatibility_page,
    config_page,
    connectors_page,
    flags_page,
    rest_page,
    state_machines_page,
)

DOCS = Path(__file__).resolve().parents[3] / "docs"


def write(folder: Path) -> None:
    """Writes them; of cli.md the part below its handwritten one. compatibility.md keeps the tests that it names."""
    made = {
        "config.md": config_page.render(),
        "connectors.md": connectors_page.render(),
        "rest.md": rest_page.render(),
        "state-machines.md": state_machines_page.render(),
        "compatibility.md": compatibility_page.rendered(
            (folder / "compatibility.md").read_text(encoding="utf-8")
        ),
        "cli.md": flags_page.rendered((folder / "cli.md").read_text(encoding="utf-8")),
    }
    for name, page in made.items():
        (folder / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write(DOCS)
