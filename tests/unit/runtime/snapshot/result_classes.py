"""Classes of rows of execute_and_collect."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass
class Reading:
    sensor: str
    value: float
    tags: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    a: int
    b: str


class Pair(NamedTuple):
    left: int
    right: str


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Opaque:
    """Made by a function of its own: no codec but pickle knows how."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        return Opaque, (self.number,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self.number == other.number


@dataclass
class Holder:
    name: str
    inner: Opaque


class WithProperty:
    """A setter that a stored field must not reach."""

    calls = 0

    @property
    def armed(self) -> bool:
        return False

    @armed.setter
    def armed(self, value: bool) -> None:
        type(self).calls += 1


class WithSlotAndProperty(WithProperty):
    __slots__ = ("number",)
