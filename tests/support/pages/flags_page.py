"""The flags of all actions in docs/cli.md, written from the table, so that page and command agree.

Owner: none (pure). The handwritten part above the heading stays.
"""

from __future__ import annotations

from collections.abc import Iterator

from yarrow.cli.main import app
from yarrow.cli.parameters.action import Action
from yarrow.cli.parameters.flags import Flag

HEADING = "## The flags of each action"
_INTRODUCTION = (
    "`python -m tests.support.pages` writes this part from the table of flags. A flag that sets a key goes before the"
    " configuration\nfile. If a flag of YARN (`-y...` of `run`, and those of `session`) and `-D` set the same key, `-D`"
    " counts."
)


def rendered(page: str) -> str:
    """The page with all flags after its handwritten part."""
    by_hand = page.partition(f"{HEADING}\n")[0].rstrip()
    return "\n".join([by_hand, "", HEADING, "", _INTRODUCTION, *_actions()]) + "\n"


def actions() -> dict[str, Action]:
    """The actions that help shows, by name and in its order."""
    return {
        command.name: command.callback
        for command in app.registered_commands
        if command.name and isinstance(command.callback, Action) and not command.hidden
    }


def _actions() -> Iterator[str]:
    alike: dict[tuple[Flag, ...], list[str]] = {}
    for name, action in actions().items():
        alike.setdefault(action.flags, []).append(name)
    for flags, names in alike.items():
        yield ""
        yield f"### {', '.join(f'`{name}`' for name in names)}"
        yield ""
        yield "| flag | key | meaning |"
        yield "| --- | --- | --- |"
        for flag in flags:
            if flag.help is not None:
                yield _row(flag)


def _row(flag: Flag) -> str:
    takes = flag.metavar or {int: "N", str: "TEXT"}.get(flag.type, "")
    if flag.written:
        cell = ", ".join(f"`{written}`" for written in flag.written) + (f" `{takes}`" if takes else "")
    else:
        cell = f"`{flag.metavar or flag.name.upper()}`"
    again = " May be repeated." if flag.written and flag.type == list[str] else ""
    return (
        f"| {_escaped(cell)} | {f'`{flag.key}`' if flag.key else ''} | {_escaped(flag.help or '')}{again} |"
    )


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
