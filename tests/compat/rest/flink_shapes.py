"""Reads the list of Flink's REST paths with the fields of their answers, as `data/flink_rest.txt` writes it.

A path is a line `/jobs/:jobid GET  <Name`; below it STATUS, REQ (request body), RES (answer) and Q (query
parameters). A shape is `Name(field:shape, ...)`, `[shape]`, `{key:shape}`, `Enum[A, B]`, or a plain name; a
name with `()` alone is a shape that the list does not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data" / "flink_rest.txt"


@dataclass(frozen=True, slots=True)
class Shape:
    """Fields of an object; `items` of an array or values of a map; neither = a plain value or unknown."""

    fields: dict[str, Shape] = field(default_factory=dict)
    items: Shape | None = None


@dataclass(frozen=True, slots=True)
class FlinkPath:
    """One path with one method."""

    path: str
    method: str
    status: int | None
    request: Shape
    response: Shape
    query: tuple[str, ...]


def flink_paths() -> list[FlinkPath]:
    """All paths of the list."""
    found = []
    for block in re.split(r"\n(?=/)", DATA.read_text(encoding="utf-8")):
        head = re.match(r"(/\S*) (GET|POST|PATCH|DELETE|PUT) ", block)
        assert head is not None, block
        lines = {
            key: text for key, text in re.findall(r"^    (STATUS|REQ|RES|Q)\b ?(.*)$", block, re.MULTILINE)
        }
        found.append(
            FlinkPath(
                path=re.sub(r":(\w+)", lambda match: "{" + match[1] + "}", head[1]),
                method=head[2].lower(),
                status=int(lines["STATUS"].split()[0]) if "STATUS" in lines else None,
                request=parse(lines.get("REQ", "None()")),
                response=parse(lines.get("RES", "None()")),
                query=tuple(lines.get("Q", "").partition(":")[2].split()),
            )
        )
    return found


def parse(text: str) -> Shape:
    """One shape."""
    shape, rest = _shape(text.strip())
    assert not rest, f"cannot read {rest!r} of {text!r}"
    return shape


def _shape(text: str) -> tuple[Shape, str]:
    if text.startswith("["):
        items, rest = _shape(text[1:])
        return Shape(items=items), rest.removeprefix("]")
    if text.startswith("{"):
        _, rest = _shape(text[1:])
        values, rest = _shape(rest.removeprefix(":"))
        return Shape(items=values), rest.removeprefix("}")
    name = re.match(r"[\^\w]*", text)
    assert name is not None
    rest = text[name.end() :]
    if rest.startswith("["):
        return Shape(), rest[rest.index("]") + 1 :]
    if not rest.startswith("("):
        return Shape(), rest
    fields: dict[str, Shape] = {}
    rest = rest[1:]
    while not rest.startswith(")"):
        key, _, rest = rest.partition(":")
        fields[key], rest = _shape(rest)
        rest = rest.removeprefix(",").lstrip()
    return Shape(fields=fields), rest[1:]
