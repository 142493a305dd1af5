"""Which values a fold keeps, where the loop that makes them tells what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from yarrow.common import Types
from yarrow.common.typeinfo import TypeInformation
from yarrow.container.batch.folding.kept_values import generate_kept, kept_test
from yarrow.container.codegen.code_writer import UNKNOWN, CodeWriter
from yarrow.container.codegen.user_calls import generate_made_value, tuple_fields

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
NAMED = Types.TUPLE([Types.STRING(), Types.INT(), Types.DOUBLE()])


def with_one(value: Any) -> Any:
    return (value, 1)


def with_true(value: Any) -> Any:
    return (value, True)


def with_none(value: Any) -> Any:
    return (value, None)


def threefold(value: Any) -> Any:
    return (value, 1, 2)


def renamed(value: Any) -> Any:
    return ("name", value, None)


def itself(value: Any) -> Any:
    return value


VALUES = (1, -(2**62), 2**63, True, 1.0, "text", None, (1, 2), (1, "text"), [1, 2])


@pytest.mark.parametrize("declared", [PAIR, NAMED], ids=str)
@pytest.mark.parametrize("function", [with_one, with_true, with_none, threefold, renamed, itself])
def test_a_loop_that_knows_the_tuple_keeps_what_the_whole_test_keeps(
    function: Callable[[Any], Any], declared: TypeInformation
) -> None:
    code = CodeWriter(inlines=True)
    made = generate_made_value(code, "map", function, ["given"])
    code.line(f"return {generate_kept(code, made, declared)}")
    is_kept = code.compile("is_kept", "given").function
    for value in VALUES:
        assert bool(is_kept(value)) is kept_test(declared)([function(value)]), value


def test_the_form_of_a_tuple_is_known_if_the_loop_makes_it() -> None:
    assert tuple_fields("(value % 3, 1)") == (UNKNOWN, 1)
    assert tuple_fields("()") == ()
    for other in ("(*value, 1)", "[value, 1]", "value", "(value, 1) if value else (1,)"):
        assert tuple_fields(other) is None
    code = CodeWriter(inlines=True)
    tested = generate_kept(code, generate_made_value(code, "map", with_one, ["given"]), PAIR)
    assert "len(" not in tested and tested.count("type(") == 1
    # A function that is called may return anything.
    called = CodeWriter(inlines=False)
    assert "len(" in generate_kept(called, generate_made_value(called, "map", with_one, ["given"]), PAIR)
