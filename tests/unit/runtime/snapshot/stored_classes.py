"""Classes whose instances are kept as state, and what they became in later programs.

A test writes with one class and reads after giving its name to another.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Colour(enum.Enum):
    RED = 1
    GREEN = "g"


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass
class Visit:
    page: str
    count: int
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    at: Point | None = None


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Opaque:
    """Says itself how it is pickled."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return Opaque, (self.value,)

    def __eq__(self, other: object) -> bool:
        return type(other) is Opaque and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


# What they became.


@dataclass
class VisitWithMore:
    """`count` became wider, `tags` went, `seconds` and `by` came."""

    page: str
    count: float
    seconds: float = 1.5
    by: list[str] = field(default_factory=lambda: ["nobody"])


@dataclass
class VisitWithoutDefault:
    page: str
    count: int
    seconds: float


@dataclass
class VisitOfText:
    page: str
    count: str


class PointWithMore(NamedTuple):
    x: float
    z: str = "z"


class PointWithoutDefault(NamedTuple):
    x: int
    z: str


class FewerColours(enum.Enum):
    RED = 1
