"""Columns as text: the names and types of a table, in the words of Spark SQL (`carrier string, delay bigint`).

Owner: none; pure. A schema is checked where a program declares it, long before a JVM could. Types are compared by their
text, so each type has one text.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

#: Names of types, and Spark's own name of each.
_SIMPLE: Final = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_][A-Za-z_0-9]*)|(\d+)|([<>(),:]))")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
#: Digits of a decimal, and of these behind the point, where a type says neither.
_PRECISION, _SCALE = "10", "0"
_MOST_DIGITS: Final = 38
_BACKTICKS: Final = ", between backticks if it has more than letters from a to z, digits and underscores"


class ColumnTextError(ValueError):
    """A text names no columns."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    name: str
    #: Spark's text of the type, as `array<bigint>`.
    type: str

    def __str__(self) -> str:
        """As a schema names it."""
        return f"{quoted(self.name)} {self.type}"


def quoted(name: str) -> str:
    """The name as a schema writes it."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def columns_of(text: str) -> tuple[Column, ...]:
    """The columns that a text names. Raises ColumnTextError with the place at which it says something else."""
    reader = _Reader(text)
    columns = reader.fields(":", "")
    if not columns:
        raise reader.wrong("the name of a column")
    seen: set[str] = set()
    for column in columns:
        # Spark does not tell names by their case.
        if column.name.lower() in seen:
            raise ColumnTextError(f"{text!r}: the column {column.name!r} is there twice")
        seen.add(column.name.lower())
    return columns


class _Reader:
    """Reads a text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def wrong(self, expected: str) -> ColumnTextError:
        """The error at the present place."""
        rest = self._text[self._at :].strip()
        found = f"{rest[:20]!r}" if rest else "the end of the text"
        return ColumnTextError(
            f"{self._text!r}: expected {expected}, found {found}; write columns as 'carrier string, delay bigint'"
        )

    def fields(self, separator: str, end: str) -> tuple[Column, ...]:
        """Names and types up to `end`, "" = the end of the text; `separator` may stand between name and type."""
        found: list[Column] = []
        while not self._reaches(end):
            if found:
                self._take(",")
            name = self._name()
            if separator and self._peek() == separator:
                self._take(separator)
            found.append(Column(name, self._type()))
        return tuple(found)

    def _reaches(self, end: str) -> bool:
        if end:
            return self._peek() == end
        return not self._text[self._at :].strip()

    def _token(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._at)

    def _peek(self) -> str:
        token = self._token()
        return token[0].strip() if token else ""

    def _take(self, sign: str) -> None:
        token = self._token()
        if token is None or token[4] != sign:
            raise self.wrong(repr(sign))
        self._at = token.end()

    def _name(self) -> str:
        token = self._token()
        if token is None or not (token[1] or token[2]) or self._text[token.end() :][:1].isalnum():
            has_text = bool(self._text[self._at :].strip())
            raise self.wrong(f"the name of a column{_BACKTICKS if has_text else ''}")
        self._at = token.end()
        return token[2] or token[1][1:-1].replace("``", "`")

    def _number(self) -> str:
        token = self._token()
        if token is None or not token[3]:
            raise self.wrong("a number")
        self._at = token.end()
        return str(int(token[3]))

    def _type(self) -> str:
        token = self._token()
        word = (token[2] or "").lower() if token else ""
        nested = {"array": self._array, "map": self._map, "struct": self._struct, "decimal": self._decimal}
        if token is None or word not in {*_SIMPLE, *nested}:
            raise self.wrong(f"a type ({', '.join([*dict.fromkeys(_SIMPLE.values()), *nested])})")
        self._at = token.end()
        return nested[word]() if word in nested else _SIMPLE[word]

    def _array(self) -> str:
        self._take("<")
        element = self._type()
        self._take(">")
        return f"array<{element}>"

    def _map(self) -> str:
        self._take("<")
        key = self._type()
        self._take(",")
        value = self._type()
        self._take(">")
        return f"map<{key},{value}>"

    def _struct(self) -> str:
        self._take("<")
        fields = self.fields(":", ">")
        self._take(">")
        return f"struct<{','.join(f'{each.name}:{each.type}' for each in fields)}>"

    def _decimal(self) -> str:
        precision, scale = _PRECISION, _SCALE
        if self._peek() == "(":
            self._take("(")
            precision = self._number()
            if self._peek() == ",":
                self._take(",")
                scale = self._number()
            self._take(")")
        if not int(scale) <= int(precision) <= _MOST_DIGITS or int(precision) < 1:
            raise ColumnTextError(
                f"{self._text!r}: decimal({precision},{scale}) has at least 1 and at most {_MOST_DIGITS} digits, and"
                " not more of them behind the point"
            )
        return f"decimal({precision},{scale})"
