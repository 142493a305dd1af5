"""The types a configuration value can have: how its text is read, written and described.

Owner: any thread; immutable values without I/O. A type knows no key: `ConfigOption` adds key and place to
what a type raises. `parse(render(value)) == value` holds for each of them. Text forms follow Flink's: enums
and booleans without regard to case, lists separated by `;`, maps as `key:value` pairs separated by `,`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from yarrow.common.values.quantities import Duration, MemorySize, duration_nanos, memory_bytes
from yarrow.common.values.quoted_lists import join_quoted, split_quoted

T = TypeVar("T")
E = TypeVar("E", bound=enum.Enum)

MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T]):
    """The text form of values of one type. `parse` raises ValueError with a reason."""

    #: The name in docs/config.md.
    name: str
    #: Completes "Expected ...".
    expected: str
    example: str
    parse: Callable[[str], T]
    render: Callable[[T], str]
    #: True for maps, whose entries may also be written as keys of their own below the option's key.
    is_map: bool = False
    #: True for paths in a file system that several processes reach: plain ones lie in that of `fs.default-scheme`.
    is_path: bool = False


@dataclass(frozen=True, slots=True)
class PortRange:
    """Ports to try in order, as closed intervals; 0 stands for any free port."""

    intervals: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """Reads `8081`, `50100-50200`, `50100,50200-50300` or 0."""
        intervals = []
        for part in text.split(","):
            low, dash, high = part.partition("-")
            first = _port(low.strip())
            last = _port(high.strip()) if dash else first
            if last < first:
                raise ValueError(f"the range {part.strip()} ends before it begins")
            intervals.append((first, last))
        return cls(tuple(intervals))

    @classmethod
    def of(cls, port: int) -> PortRange:
        return cls(((port, port),))

    @property
    def is_any(self) -> bool:
        """True when the operating system chooses the port."""
        return self.intervals == ((0, 0),)

    @property
    def single(self) -> int | None:
        """The port when there is exactly one, else None."""
        first, last = self.intervals[0]
        return first if len(self.intervals) == 1 and first == last else None

    def __iter__(self) -> Iterator[int]:
        for first, last in self.intervals:
            yield from range(first, last + 1)

    def __contains__(self, port: object) -> bool:
        return isinstance(port, int) and any(first <= port <= last for first, last in self.intervals)

    def __str__(self) -> str:
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in self.intervals)


def _port(text: str) -> int:
    number = _integer(text)
    if not 0 <= number <= MAX_PORT:
        raise ValueError(f"{number} is no port")
    return number


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip(), re.ASCII):
        raise ValueError("it is not a whole number")
    return int(text)


def _float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("it is not a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError("it is not a finite number")
    return number


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("it is neither true nor false")


def _string(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text


def _check_bounds(number: float, minimum: float | None, maximum: float | None) -> None:
    if minimum is not None and number < minimum:
        raise ValueError(f"it is less than {minimum}")
    if maximum is not None and number > maximum:
        raise ValueError(f"it is more than {maximum}")


def _bounds_text(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum} to {maximum}"
    if minimum is not None:
        return f" of at least {minimum}"
    return f" of at most {maximum}" if maximum is not None else ""


def integer(minimum: int | None = None, maximum: int | None = None, example: str = "4") -> ValueType[int]:
    """Whole numbers within closed bounds."""

    def parse(text: str) -> int:
        number = _integer(text)
        _check_bounds(number, minimum, maximum)
        return number

    return ValueType("Integer", f"a whole number{_bounds_text(minimum, maximum)}", example, parse, str)


def floating(
    minimum: float | None = None, maximum: float | None = None, example: str = "0.5"
) -> ValueType[float]:
    """Finite numbers within closed bounds."""

    def parse(text: str) -> float:
        number = _float(text)
        _check_bounds(number, minimum, maximum)
        return number

    return ValueType("Float", f"a number{_bounds_text(minimum, maximum)}", example, parse, repr)


def duration(
    default_unit: str = "ms", example: str = "10 s", minimum: Duration | None = None
) -> ValueType[Duration]:
    """Lengths of time; a bare number counts in `default_unit`."""

    def parse(text: str) -> Duration:
        value = Duration(duration_nanos(text, default_unit))
        if minimum is not None and value < minimum:
            raise ValueError(f"it is less than {minimum}")
        return value

    least = f" of at least {minimum}" if minimum is not None else ""
    expected = (
        f"a duration{least} with a unit (ns, us, ms, s, min, h, d; without one: {default_unit})"
        " or in ISO 8601"
    )
    return ValueType("Duration", expected, example, parse, str)


def memory_size(example: str = "512 mb", minimum: MemorySize | None = None) -> ValueType[MemorySize]:
    """Amounts of memory; a bare number counts in bytes."""

    def parse(text: str) -> MemorySize:
        value = MemorySize(memory_bytes(text))
        if minimum is not None and value < minimum:
            raise ValueError(f"it is less than {minimum}")
        return value

    least = f" of at least {minimum}" if minimum is not None else ""
    return ValueType(
        "MemorySize",
        f"a size{least} with a unit (b, kb, mb, gb, tb; without one: bytes)",
        example,
        parse,
        str,
    )


def enum_of(enumeration: type[E], texts: Mapping[E, str] | None = None) -> ValueType[E]:
    """Members of an enum by name or by text, without regard to case or to `-` against `_`.

    A member's text stands in `texts`; without them it is the member's value, or its name where that is a number.
    """

    def folded(text: str) -> str:
        return text.strip().lower().replace("_", "-")

    if texts is None:
        texts = {
            member: member.value if isinstance(member.value, str) else member.name for member in enumeration
        }
    members: Mapping[str, E] = {
        folded(text): member for member in enumeration for text in (member.name, texts[member])
    }
    names = list(texts.values())

    def parse(text: str) -> E:
        member = members.get(folded(text))
        if member is None:
            raise ValueError("it is none of the possible values")
        return member

    return ValueType("Enum", f"one of {', '.join(names)}", names[0], parse, texts.__getitem__)


#: The possible beginnings of a local URI: at the beginning of a directory in a list.
_FILE_SCHEME = re.compile(r"(?<![^,|:;\s\"'\[])file:(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)
_ANY_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^,|;\s\"'\]]*")


def list_of(item: ValueType[T], separators: str = ";", example: str = "a;b") -> ValueType[tuple[T, ...]]:
    """Lists split at any of `separators`, or in brackets at commas, as YAML writes them.

    An element that contains a separator stands in single or double quotes.
    """

    def parse(text: str) -> tuple[T, ...]:
        stripped = text.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            return tuple(item.parse(part) for part in split_quoted(stripped[1:-1], ","))
        return tuple(item.parse(part) for part in split_quoted(text, separators))

    def render(values: tuple[T, ...]) -> str:
        return join_quoted([item.render(value) for value in values], separators)

    shown = " or ".join(f"`{separator}`" for separator in separators)
    return ValueType(
        f"List<{item.name}>", f"a list separated by {shown}, each {item.expected}", example, parse, render
    )


def _local_directories() -> ValueType[tuple[str, ...]]:
    """Lists of local directories, also as URIs; Flink accepts a comma, a bar and a colon between two.

    A colon stands in a URI too, so that its scheme is taken off before the text is split.
    """
    paths = list_of(STRING, separators=",|:;", example="/data1,/data2")

    def parse(text: str) -> tuple[str, ...]:
        plain = _FILE_SCHEME.sub("", text)
        foreign = _ANY_SCHEME.search(plain)
        if foreign is not None:
            raise ValueError(f"{foreign[0]} is no local directory: write /path or file:///path")
        return paths.parse(plain)

    expected = paths.expected.replace("each a text that is not empty", "each a local path or file:///path")
    return ValueType(paths.name, expected, paths.example, parse, paths.render)


def _parse_map(text: str) -> Mapping[str, str]:
    pairs: dict[str, str] = {}
    for part in split_quoted(text, ","):
        key, colon, value = part.partition(":")
        if not colon or not key.strip():
            raise ValueError(f"{part!r} is not of the form key:value")
        pairs[key.strip()] = value.strip()
    return pairs


def _render_map(pairs: Mapping[str, str]) -> str:
    return join_quoted([f"{key}:{value}" for key, value in pairs.items()], ",")


STRING: Final = ValueType("String", "a text that is not empty", "text", _string, str)
#: A path in a file system; one without a scheme lies in that of `fs.default-scheme`.
FILE_SYSTEM_PATH: Final = ValueType(
    "String", "a path that is not empty", "hdfs://host:9000/path", _string, str, is_path=True
)
#: A text that may be empty.
TEXT: Final = ValueType("String", "a text", "text", str, str)
BOOLEAN: Final = ValueType(
    "Boolean", "true or false", "true", _boolean, lambda value: "true" if value else "false"
)
INTEGER: Final = integer()
#: Finite numbers.
NUMBER: Final = floating()
POSITIVE: Final = integer(minimum=1)
COUNT: Final = integer(minimum=0)
FRACTION: Final = floating(0.0, 1.0)
DURATION: Final = duration()
MEMORY_SIZE: Final = memory_size()
PORT: Final = ValueType("Port", f"a port from 0 to {MAX_PORT} (0: any free one)", "8081", _port, str)
PORT_RANGE: Final = ValueType(
    "PortRange",
    "a port, a range, or several separated by commas (0: any free port)",
    "50100-50200",
    PortRange.parse,
    str,
)
STRINGS: Final = list_of(STRING)
#: Directories of the machine.
DIRECTORIES: Final = _local_directories()
MAP: Final[ValueType[Mapping[str, str]]] = ValueType(
    "Map", "key:value pairs separated by commas", "name:daily,owner:ada", _parse_map, _render_map, is_map=True
)
