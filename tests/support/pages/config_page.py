"""docs/config.md: written from the options, so that it cannot say other than the code.

Owner: none (pure). It reads no configuration. The text depends on the declarations alone, never on the machine or the
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from yarrow.runtime.config.known_keys import FAMILIES, family_of, flink_keys
from yarrow.runtime.config.options import OPTION_GROUPS
from yarrow.runtime.config.values.option import EngineOption

_INTRODUCTION: Final = """\
# Configuration

`python -m tests.support.pages` writes this page from the options.

Yarrow reads `config.yaml` (nested YAML or dotted keys) or, without it, `flink-conf.yaml` (one `key: value` a
line). The folder is the one that `YARROW_CONF_DIR` or `FLINK_CONF_DIR` names, else `conf`. Values given by
`-D key=value` come before those of the file, and values a program sets come before both.

Keys and defaults are Flink's, or the text says why not. Keys marked *Yarrow* exist only here. Yarrow accepts
a key of Flink without an effect, with one warning. This page marks it *no effect*, with
the reason. Yarrow refuses a key that neither has, or a value of the wrong type, before anything starts.

| type | how it is written |
| --- | --- |
| Boolean | `true` or `false` |
| Duration | `10 s`: units `ns`, `us`, `ms`, `s`, `min`, `h`, `d`; a bare number counts in ms; or `PT1M30S` |
| MemorySize | `512 mb`: units `b`, `kb`, `mb`, `gb`, `tb`, powers of 1024; a bare number counts in bytes |
| PortRange | `8081`, `50100-50200` or `50100,50200-50300`; 0 is any free port |
| List | elements separated by `;`, or a YAML list |
| Map | `key:value` pairs separated by `,`, or each entry as a key of its own below the option's |
"""


def render() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for group in OPTION_GROUPS:
        yield f"## {group.title}"
        yield ""
        yield "| key | type | default | meaning |"
        yield "| --- | --- | --- | --- |"
        for option in group.options:
            yield _row(option)
        yield ""
    yield "## Keys with a free ending"
    yield ""
    yield "| keys | meaning |"
    yield "| --- | --- |"
    for family in FAMILIES:
        effect = "" if family.meaningful else " Accepted without effect."
        yield f"| `{family.prefix}*` | {_cell(family.doc)}{effect} |"


def _row(option: EngineOption[Any]) -> str:
    origin = "" if is_flinks(option.key) else " *Yarrow*"
    default = option.default_text
    shown = f"`{_cell(default)}`" if option.default is not None else _cell(default)
    also = [f"`{name}`" for name in option.names[1:]]
    meaning = _cell(option.doc) + (f" Also read from {', '.join(also)}." if also else "")
    if option.no_effect:
        meaning = f"*No effect*: {_cell(option.no_effect)}. In Flink: {meaning[0].lower()}{meaning[1:]}"
    if option.type.name == "Enum":
        values = option.type.expected.removeprefix("one of ")
        meaning += f" Values: {_cell(values)}."
    return f"| `{option.key}`{origin} | {_cell(option.type.name)} | {shown} | {meaning} |"


def is_flinks(key: str) -> bool:
    """Whether Flink has the key, by name or as a member of a family."""
    return key in flink_keys() or family_of(key) is not None


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
