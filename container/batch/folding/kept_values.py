"""Kept values: generated tests whether a value comes out of the codec of its declared type as it went in.

Owner: the calling thread. A fold sees rows before the codec converts or refuses them. It may only fold rows that the
codec keeps as they are, and only values that it keeps may be encoded by it. Must not know folds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, cast

from yarrow.common.time import Instant
from yarrow.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from yarrow.common.types import Row, positional_names
from yarrow.container.codegen.code_writer import UNKNOWN, CodeWriter

#: By the tag of a type: the only class of values that its codec keeps.
_CLASSES: Final[dict[str, type]] = {
    "STRING": str,
    "CHAR": str,
    "BOOLEAN": bool,
    "BYTE": int,
    "SHORT": int,
    "INT": int,
    "LONG": int,
    "BIG_INT": int,
    "FLOAT": float,
    "DOUBLE": float,
    "BIG_DEC": Decimal,
    "INSTANT": Instant,
    "SQL_DATE": dt.date,
    "SQL_TIME": dt.time,
    "SQL_TIMESTAMP": dt.datetime,
}
#: The greatest whole number of one digit in CPython, which compares such numbers without a call.
_ONE_DIGIT: Final = (1 << 30) - 1
_ALWAYS: Final = "True"
_NEVER: Final = "False"


def never_kept(declared: TypeInformation | None) -> bool:
    """Whether no value of the type is known to be kept."""
    return generate_kept(CodeWriter(), "value", declared) == _NEVER


def has_known_size(declared: TypeInformation | None) -> bool:
    """Whether a look at a value of the type and its fields tells its size: nothing is nested deeper."""
    if isinstance(declared, (TupleTypeInfo, RowTypeInfo)):
        return all(isinstance(each, (BasicTypeInfo, SqlTimeTypeInfo)) for each in declared.get_field_types())
    return isinstance(declared, (BasicTypeInfo, SqlTimeTypeInfo))


@lru_cache(1024)
def kept_test(declared: TypeInformation | None) -> Callable[[list[Any]], bool]:
    """A function that tells whether the codec of the declared type keeps all values of a list."""
    code = CodeWriter()
    code.line(f"return {_all('True', generate_kept(code, 'value', declared), 'value', 'values')}")
    return cast(Callable[[list[Any]], bool], code.compile("are_kept", "values").function)


def generate_kept(code: CodeWriter, value: str, declared: TypeInformation | None) -> str:
    """An expression that is true if the codec of the declared type keeps the value of a variable."""
    if declared is None or isinstance(declared, PickledBytesTypeInfo):
        return _ALWAYS
    if isinstance(declared, (BasicTypeInfo, SqlTimeTypeInfo)):
        return _atom(code, value, declared)
    if isinstance(declared, TupleTypeInfo):
        types = declared.get_field_types()
        if (made := code.made_tuples.get(value)) is not None:
            return _made_fields(code, value, made, types)
        return _fields(code, f"type({value}) is tuple and len({value}) == {len(types)}", value, types)
    if isinstance(declared, RowTypeInfo):
        types = declared.get_field_types()
        names = declared.get_field_names()
        borne = code.bind("names", tuple(names) if declared.is_named else positional_names(len(types)))
        head = f"type({value}) is {code.bind_as('Row', Row)} and {value}._fields == {borne}"
        return _fields(code, f"{head} and len({value}._values) == {len(types)}", f"{value}._values", types)
    if isinstance(declared, PrimitiveArrayTypeInfo) and declared.python_type is bytes:
        return f"type({value}) is bytes"
    if isinstance(declared, (PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo, ListTypeInfo)):
        item = code.fresh("i")
        return _all(f"type({value}) is list", generate_kept(code, item, declared.element_type), item, value)
    if isinstance(declared, MapTypeInfo):
        key, item = code.fresh("i"), code.fresh("i")
        keys = _all(f"type({value}) is dict", generate_kept(code, key, declared.key_type_info), key, value)
        kept = generate_kept(code, item, declared.value_type_info)
        return _NEVER if keys == _NEVER else _all(keys, kept, item, f"{value}.values()")
    return _NEVER


def _atom(code: CodeWriter, value: str, declared: BasicTypeInfo | SqlTimeTypeInfo) -> str:
    kind = _CLASSES.get(declared.tag)
    if kind is None:
        return _NEVER
    test = f"type({value}) is {code.bind_as(f'class_of_{declared.tag}', kind)}"
    limits = declared.value_range if isinstance(declared, BasicTypeInfo) else None
    if limits is not None:
        return f"{test} and {_within(value, *limits)}"
    if kind is str:
        # Lone surrogates have no UTF-8.
        test += f" and ({value}.isascii() or {code.bind_as('has_utf8', _has_utf8)}({value}))"
    if declared.tag == "CHAR":
        return f"{test} and len({value}) == 1"
    if kind is dt.time or kind is dt.datetime:
        return f"{test} and {value}.tzinfo is None and not {value}.fold"
    return test


def _within(value: str, least: int, most: int) -> str:
    """A test of limits; most numbers are small, and the test of those is cheaper."""
    exact = f"{least} <= {value} <= {most}"
    if least <= -_ONE_DIGIT and most >= _ONE_DIGIT:
        return f"({-_ONE_DIGIT} <= {value} <= {_ONE_DIGIT} or {exact})"
    return exact


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _made_fields(
    code: CodeWriter, value: str, made: tuple[object, ...], types: Sequence[TypeInformation]
) -> str:
    """The test of a tuple whose form is known: of the fields that the loop computes alone."""
    if len(made) != len(types):
        return _NEVER
    tests = []
    for position, (constant, declared) in enumerate(zip(made, types, strict=True)):
        if constant is not UNKNOWN:
            if constant is not None and not kept_test(declared)([constant]):
                return _NEVER
            continue
        field = code.fresh("i")
        test = generate_kept(code, field, declared)
        if test == _NEVER:
            return _NEVER
        if test != _ALWAYS:
            tests.append(f"(({field} := {value}[{position}]) is None or {test})")
    return " and ".join(tests) or _ALWAYS


def _fields(code: CodeWriter, head: str, values: str, types: Sequence[TypeInformation]) -> str:
    tests = [head]
    for position, declared in enumerate(types):
        field = code.fresh("i")
        test = generate_kept(code, field, declared)
        if test == _NEVER:
            return _NEVER
        if test != _ALWAYS:
            tests.append(f"(({field} := {values}[{position}]) is None or {test})")
    return " and ".join(tests)


def _all(head: str, test: str, item: str, values: str) -> str:
    if test in (_ALWAYS, _NEVER):
        return head if test == _ALWAYS else _NEVER
    return f"{head} and all([{test} for {item} in {values}])"
