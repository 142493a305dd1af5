"""Key selectors that only read fields are not called by generated code, and fail as if they were."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from operator import itemgetter
from types import FrameType, FunctionType, SimpleNamespace
from typing import Any

import pytest

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.field_readers import FieldRead, field_reads, generate_call

OUTSIDE = 1


class Selector:
    """As a KeySelector."""

    def get_key(self, value: Any) -> Any:
        return value[1]

    def of_itself(self, value: Any) -> Any:
        return self


def first(row: Any) -> Any:
    return row[0]


READERS: list[tuple[Callable[[Any], Any], tuple[FieldRead, ...]]] = [
    (lambda row: row, ()),
    (lambda row: row[0], (FieldRead(0, False),)),
    (lambda row: row["user"], (FieldRead("user", False),)),
    (lambda row: row.user, (FieldRead("user", True),)),
    (lambda row: row.user[2].name, (FieldRead("user", True), FieldRead(2, False), FieldRead("name", True))),
    (first, (FieldRead(0, False),)),
    (Selector().get_key, (FieldRead(1, False),)),
    (itemgetter(3), (FieldRead(3, False),)),
]
OTHERS: list[Callable[..., Any]] = [
    lambda row: 1,
    lambda row: row[0] + 1,
    lambda row: (row[0], row[1]),
    lambda row: row[OUTSIDE],
    lambda row: row.user(),
    lambda row: row[row[0]],
    lambda row: row[1:2],
    lambda row, other=0: row[0],
    lambda *rows: rows[0],
    lambda row, **more: row[0],
    lambda row: [][0],
    Selector().of_itself,
    itemgetter(0, 1),
    str,
    Selector,
]


def compiled(selector: Callable[[Any], Any]) -> Callable[[list[Any], list[Any]], None]:
    code = CodeWriter()
    value, key = code.fresh("v"), code.fresh("k")
    with code.block(f"for {value} in rows:"):
        generate_call(code, "key", selector, value, key)
        code.line(f"keys.append({key})")
    return code.compile("keys_of", "rows, keys").function


@pytest.mark.parametrize(("selector", "reads"), READERS)
def test_what_a_function_reads_is_known(selector: Callable[[Any], Any], reads: tuple[FieldRead, ...]) -> None:
    assert field_reads(selector) == reads


@pytest.mark.parametrize("selector", OTHERS)
def test_whatever_does_more_than_reading_is_called(selector: Callable[..., Any]) -> None:
    assert field_reads(selector) is None


def test_generated_code_reads_what_the_function_would_and_does_not_call_it() -> None:
    called = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.append(frame.f_code)

    rows = [(number, "text") for number in range(20)]
    keys: list[Any] = []
    keys_of = compiled(first)
    sys.setprofile(note)
    try:
        keys_of(rows, keys)
    finally:
        sys.setprofile(None)
    assert keys == list(range(20))
    assert first.__code__ not in called


def test_constants_and_attributes_are_read_one_after_the_other() -> None:
    row = SimpleNamespace(user=[0, 0, SimpleNamespace(name="n")])
    keys: list[Any] = []
    compiled(lambda row: row.user[2].name)([row], keys)
    assert keys == ["n"]


@pytest.mark.parametrize(("row", "error"), [((), IndexError), (5, TypeError), ({1: 1}, KeyError)])
def test_an_error_has_the_functions_own_line_and_no_other_error_behind_it(
    row: Any, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        compiled(first)([row], [])
    assert raised.value.__context__ is None
    assert traceback.extract_tb(raised.tb)[-1].line == "return row[0]"


def test_a_name_that_is_no_identifier_never_becomes_source() -> None:
    forged = (lambda row: row.user).__code__.replace(co_names=("user\n    raise SystemExit",))
    assert field_reads(FunctionType(forged, {})) is None
