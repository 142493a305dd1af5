"""Formulas of functions: which forms are read, that the loop computes the same as the call, and what is refused."""

from __future__ import annotations

import ast
import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import event, example, given, reject
from hypothesis import strategies as st

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.inlining import control_flow, proofs, stack_machine
from yarrow.container.codegen.inlining.formulas import Formula, NotInlined, checked_constant, checked_name
from yarrow.container.codegen.inlining.functions import inlined
from yarrow.container.codegen.inlining.proofs import proved_formula
from yarrow.container.codegen.user_calls import generate_call, generate_only_result

FACTOR = 3


def text_of(formula: Formula) -> str:
    """The formula as Python writes it, without spaces at line ends."""
    lines = [
        f"{', '.join(each.targets)} = {ast.unparse(ast.fix_missing_locations(each.value))}"
        for each in formula.assignments
    ]
    return "; ".join([*lines, ast.unparse(ast.fix_missing_locations(formula.result))])


READ_FORMS = [
    "x",
    "None",
    "(x % 1000, 1)",
    "(x[0], x[1] + y[1])",
    "x[1] % 2 == 0",
    "f'key-{x % 2000000}'",
    "f'a{x!r:>{y}}b{x:.2f}'",
    "x[1:2] + x[:2] + x[::2]",
    "x.a.b[0]['c']",
    "-x + ~y",
    "x ** 2 / 3.0 // -0.0",
    "[x, 1]",
    "[1, 2, 3]",
    "{'a': x, 'b': y}",
    "{x: 1}",
    "{**x, 'b': y}",
    "{'a': 1, **x, 'b': y}",
    "x in (1, 2)",
    "x is not None",
    "not x",
    "len(x) + max(x[0], 3)",
    "isinstance(x, str)",
    "x.name.strip()[0].lower() == 'a'",
    "','.join(x.split(',', 2))",
    "x > 1 and x < 10 and (y != 5)",
    "x > 1 or x < 10 or (not y)",
    "x and x[0] or 3",
    "(x > 1 or x < 10 or y) and x",
    "x and (y or x[0])",
    "(x is None or y) and x",
    "x if x[1] > y[1] else y",
    "x[0] if x[1] > 0 and x[2] else -1",
    "x if (x > 1 or x < 10) and y else 3",
    "x if x and (x > 1 or y < 10) else 3",
    "1 if x is None or x > 3 else 2",
    "1 if x is not None and x > 3 else 2",
    "1 if x > 3 else 2 if x > 2 else 0",
    "(1 if x > 5 else 3) if x > 3 else 2",
    "0 <= x < 10",
    "0 <= x[0] < y[0] != 3",
    "(x < y) < 3",
    "(0 <= x < 10) + 1",
    "not 0 <= x < 10",
    "0 <= x < 10 and y",
    "y and 0 <= x < 10",
    "0 <= x < 10 or y",
    "0 < (x if y else 3) < 10",
    "x if 0 <= x < 10 else y",
    "x if 0 <= x < y < 3 else y",
    "y if not 0 <= x < 10 else x",
    "x if 0 <= x < 10 and y else 3",
    "x if y and 0 <= x < 10 else 3",
    "x if 0 <= x < 10 or y else 3",
    "0 <= x < 10 if y else x",
    "(x[0], 0 <= x[1] < 10)",
    "'{} of {:>3}'.format(x, y[0])",
    "'abc'.index(x)",
]


@pytest.mark.parametrize("text", READ_FORMS)
def test_an_expression_is_read_as_it_was_written(text: str) -> None:
    assert text_of(proved_formula(eval(f"lambda x, y: {text}").__code__)) == text


def test_statements_are_read() -> None:
    def assigning(row: Any) -> Any:
        """Assignments, one of them to the parameter."""
        key, value = row
        row = value * 2
        return key, row + 1

    def returning(x: Any) -> Any:
        if x > 3:
            return 1
        if x < 1 or x is None:
            return x[0]
        if 1 <= x < 2:
            return 3
        return 2

    assert text_of(proved_formula(assigning.__code__)) == "key, value = row; row = value * 2; (key, row + 1)"
    text = "1 if x > 3 else x[0] if x < 1 or x is None else 3 if 1 <= x < 2 else 2"
    assert text_of(proved_formula(returning.__code__)) == text


# ---------------------------------------------------------------------- the loop computes the same


def computed(function: Callable[..., Any], *values: Any) -> Any:
    """What the loop computes. Raises NotInlined if the loop would call the function."""
    inlined(function, len(values))
    return _run(lambda *call: generate_call(call[0], "function", *call[1:]), function, *values)


def computed_yield(function: Callable[..., Any], *values: Any) -> Any:
    """The value that the loop computes for a generator. Raises NotInlined if the loop would call it."""
    inlined(function, len(values), yields=True)
    return _run(generate_only_result, function, *values)


def _run(generate: Callable[..., None], function: Callable[..., Any], *values: Any) -> Any:
    """The result of a loop: `generate(code, function, variables, result)` writes what it does."""
    code, found = CodeWriter(inlines=True), list[Any]()
    names = [code.fresh("v") for _ in values]
    with code.block(f"for {', '.join(names)}{',' * (len(names) == 1)} in rows:"):
        result = code.fresh("v")
        generate(code, function, names, result)
        code.line(f"{code.bind('found', found.append)}({result})")
    compiled = code.compile("loop", "rows")
    try:
        assert compiled.inlined_calls.by_line
        compiled.function([values])
    finally:
        compiled.dispose()
    return found[0]


def outcome_of(call: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        value = call()
    except Exception as error:
        return type(error), str(error)
    return type(value), repr(value)


def assert_the_same(function: Callable[..., Any], *values: Any) -> None:
    assert outcome_of(lambda: computed(function, *values)) == outcome_of(lambda: function(*values))


LEAVES = st.sampled_from(
    [
        "x",
        "y",
        "x",
        "y",
        "0",
        "1",
        "-2",
        "2.5",
        "-0.0",
        "True",
        "None",
        "'a'",
        "'{b'",
        "b'c'",
        "FACTOR",
        "(1, 'b')",
    ]
)


def _larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(parts, parts)
    comparisons = st.sampled_from(["<", "<=", "==", "!=", ">", ">="])
    operators = [
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "&",
        "|",
        "^",
        "<",
        "<=",
        "==",
        "!=",
        ">",
        "is",
        "is not",
        "in",
    ]
    return st.one_of(
        st.tuples(pairs, st.sampled_from([*operators, "not in", "and", "or", "and", "or"])).map(
            lambda made: f"({made[0][0]} {made[1]} {made[0][1]})"
        ),
        st.tuples(parts, parts, parts).map(lambda made: f"({made[0]} if {made[1]} else {made[2]})"),
        st.tuples(parts, comparisons, parts, comparisons, parts).map(lambda made: f"({' '.join(made)})"),
        st.tuples(st.sampled_from(["not ", "-", "~", "+"]), parts).map(lambda made: f"({made[0]}{made[1]})"),
        pairs.map(lambda made: f"({made[0]}, {made[1]})"),
        pairs.map(lambda made: f"[{made[0]}, {made[1]}]"),
        pairs.map(lambda made: f"{{'k': {made[0]}, **{{'m': {made[1]}}}}}"),
        pairs.map(lambda made: f"({made[0]})[{made[1]}]"),
        pairs.map(lambda made: f"({made[0]})[{made[1]}:]"),
        parts.map(lambda part: f"({part})[0]"),
        parts.map(lambda part: f"({part}).real"),
        parts.map(lambda part: f"({part}).upper()"),
        parts.map(lambda part: f"f'<{{({part})}}>'"),
        parts.map(lambda part: f"f'{{({part})!r:>8}}{{x}}'"),
        st.tuples(st.sampled_from(["len", "str", "bool", "abs", "tuple"]), parts).map(
            lambda made: f"{made[0]}({made[1]})"
        ),
    )


EXPRESSIONS = st.recursive(LEAVES, _larger, max_leaves=8)
VALUES = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.5, math.nan]),
    st.sampled_from(["", "ab", None, True, b"z"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.tuples(st.integers(0, 3), st.text(max_size=2)),
    st.dictionaries(st.sampled_from(["a", 0, 1]), st.integers(0, 3), max_size=2),
)


@pytest.mark.slow
@given(EXPRESSIONS, VALUES, VALUES)
@example("(x and x[0] or 3)", [1], 2)
@example("(f'{x}' if (x or y) and x else {'k': y})", 1, 2)
@example("(x if 0 <= x < y else (x < y < 1))", 1, 2)
@example("((0 <= x < y) < 1)", 1, 2)
def test_a_loop_computes_what_the_function_returns_or_raises(text: str, x: Any, y: Any) -> None:
    function = _made(f"lambda x, y: {text}")
    try:
        inlined(function, 2)
    except NotInlined as reason:
        event(f"called: {reason}")
        return
    event("inlined")
    assert_the_same(function, x, y)


@pytest.mark.slow
@given(st.lists(EXPRESSIONS, min_size=1, max_size=3), EXPRESSIONS, VALUES, VALUES)
def test_a_loop_assigns_as_the_function_does(values: list[str], result: str, x: Any, y: Any) -> None:
    body = "".join(f"    {'xyz'[number]} = {value}\n" for number, value in enumerate(values))
    source = f"def function(x, y):\n{body}    return {result}\n"
    function = _made(source, "function")
    try:
        inlined(function, 2)
    except NotInlined:
        return
    assert_the_same(function, x, y)


@pytest.mark.slow
@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS, EXPRESSIONS, VALUES, VALUES)
def test_a_loop_returns_early_as_the_function_does(
    test: str, first: str, other: str, last: str, x: Any, y: Any
) -> None:
    body = f"    if {test}:\n        return {first}\n    elif {other}:\n        return {last}\n    return y\n"
    function = _made(f"def function(x, y):\n{body}", "function")
    try:
        inlined(function, 2)
    except NotInlined:
        return
    assert_the_same(function, x, y)


@pytest.mark.slow
@given(st.lists(EXPRESSIONS, max_size=2), EXPRESSIONS, VALUES, VALUES)
@example([], "(x and x[0] or 3)", [1], 2)
def test_a_loop_computes_what_a_generator_yields_or_raises(
    values: list[str], result: str, x: Any, y: Any
) -> None:
    body = "".join(f"    {'xy'[number]} = {value}\n" for number, value in enumerate(values))
    function = _made(f"def function(x, y):\n{body}    yield {result}\n", "function")
    try:
        inlined(function, 2, yields=True)
    except NotInlined:
        return
    assert outcome_of(lambda: computed_yield(function, x, y)) == outcome_of(lambda: next(function(x, y)))


def _made(source: str, name: str = "") -> Callable[..., Any]:
    """The function of a source, which may be one that this version of Python does not know."""
    space: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(source if name else f"made = {source}", globals(), space)
        except SyntaxError:
            # A text in an f-string in an f-string.
            reject()
    made: Callable[..., Any] = space[name or "made"]
    return made


def test_most_expressions_of_programs_are_inlined() -> None:
    inlined(lambda x: (f"key-{x % 2_000_000}", 1), 1)
    inlined(lambda a, b: (a[0], a[1] + b[1]), 2)
    inlined(lambda x: x * FACTOR, 1)


def test_the_value_of_a_generator_is_computed() -> None:
    def both(left: Any, right: Any) -> Iterator[Any]:
        """Yields once."""
        key, value = left
        yield key, value + right[1]

    assert computed_yield(both, ("a", 1), ("a", 2)) == ("a", 3)


def _twice(x: Any) -> Iterator[Any]:
    yield x
    yield x


def _perhaps(x: Any) -> Iterator[Any]:
    if x:
        yield x


def _going_on(x: Any) -> Iterator[Any]:
    yield x
    x.append(1)


def _sent(x: Any) -> Iterator[Any]:
    y = yield x
    yield y


def _returning(x: Any) -> Any:
    yield x
    return 3


def _inside(x: Any) -> Iterator[Any]:
    yield ((yield x), 1)


def _delegating(x: Any) -> Iterator[Any]:
    yield from x


@pytest.mark.parametrize(
    "function", [_twice, _perhaps, _going_on, _sent, _returning, _inside, _delegating, lambda x: [x]]
)
def test_what_does_not_yield_exactly_once_is_called(function: Callable[..., Any]) -> None:
    with pytest.raises(NotInlined):
        inlined(function, 1, yields=True)


def test_a_generator_that_yields_nothing_of_its_own_is_read() -> None:
    def nothing(x: Any) -> Iterator[Any]:
        yield

    assert computed_yield(nothing, 1) is None


def test_methods_and_closures_are_computed() -> None:
    class Scaled:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def map(self, value: int) -> int:
            return value * self.factor

    scaled, added = Scaled(5), 7
    assert computed(scaled.map, 3) == 15
    assert computed(lambda x: x + added, 3) == 10


def test_the_middle_of_a_chained_comparison_is_computed_once() -> None:
    class Counting:
        looks = 0

        @property
        def value(self) -> int:
            self.looks += 1
            return 5

    counting = Counting()
    assert computed(lambda x: 0 <= x.value < 10, counting) is True
    assert computed(lambda x: 1 if 9 < x.value < 10 else 2, counting) == 2
    assert counting.looks == 2


def test_globals_are_read_at_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    function = lambda x: x * FACTOR  # noqa: E731
    assert computed(function, 2) == 6
    monkeypatch.setitem(globals(), "FACTOR", 10)
    assert computed(function, 2) == 20


# ---------------------------------------------------------------------- refusals


class Inherited:
    def name(self, x: Any) -> Any:
        return x


class Super(Inherited):
    def name(self, x: Any) -> Any:
        return super().name(x)


def _generator(x: Any) -> Iterator[Any]:
    yield x


async def _coroutine(x: Any) -> Any:
    return x


def _guarding(x: Any) -> Any:
    try:
        return x[0]
    except KeyError:
        return None


def _looping(x: Any) -> Any:
    while x > 3:
        x = x - 1
    return x


def _in_place(x: Any) -> Any:
    x += [1]
    return x


def _changing(x: Any) -> Any:
    x[0] = 1
    return x


def _perhaps_unbound(x: Any) -> Any:
    if x:
        y = 1
    return y


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (_generator, "generator"),
    (_coroutine, "coroutine"),
    (_guarding, "try"),
    (_looping, "leads back|assigns|instructions"),
    (_in_place, "in place"),
    (_changing, "STORE_SUBSCR"),
    (_perhaps_unbound, "assigns under a condition"),
    (Super().name, "super"),
    (lambda *x: x, "args"),
    (lambda x, *, k=1: x, "keyword-only"),
    (lambda x, y=1: x, "takes 2 arguments, not 1"),
    (lambda x: print(x), "calls print"),
    (lambda x: x.put(1), "calls x.put"),
    (lambda x: x.join(x), "calls x.join"),
    (lambda x: x.format(x), "calls x.format"),
    (lambda x: 0 in x in (x,), "keeps a value"),
    (lambda x: round(x, ndigits=2), "KW"),
    (lambda x: [y for y in x], "makes a code|inner functions|instruction"),
    (lambda x: lambda y: x, "inner functions"),
    (lambda x: unknown(x), "calls unknown"),  # type: ignore[name-defined]  # noqa: F821
    (lambda x: unknown, "reads unknown"),  # type: ignore[name-defined]  # noqa: F821
    (lambda x: sys.maxsize + FACTOR + FACTOR + x, "so many globals"),
    (len, "builtin"),
    (int, "type"),
    (contextlib.nullcontext, "ABCMeta"),
]


@pytest.mark.parametrize(("function", "reason"), REFUSED)
def test_what_is_refused(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(NotInlined, match=reason):
        inlined(function, 1)


def test_a_builtin_with_another_meaning_is_refused() -> None:
    shadowing = eval("lambda x: len(x)", {"len": str})
    with pytest.raises(NotInlined, match="len is a function of its own"):
        inlined(shadowing, 1)
    strange = eval("lambda x: len(x)", {"__builtins__": {"len": str}})
    with pytest.raises(NotInlined, match="builtins"):
        inlined(strange, 1)


def test_a_long_function_is_refused() -> None:
    with pytest.raises(NotInlined, match="too long"):
        inlined(eval("lambda x: " + " + ".join(["x"] * 500)), 1)


@pytest.mark.parametrize("name", ["a b", "class", "1a", "", "x)", None])
def test_no_text_but_an_identifier_becomes_a_name(name: object) -> None:
    with pytest.raises(NotInlined):
        checked_name(name)


def test_only_values_of_literals_are_constants() -> None:
    checked_constant((1, ("a", frozenset([2.0])), None))
    for value in (compile("1", "a", "eval"), object(), (object(),)):
        with pytest.raises(NotInlined):
            checked_constant(value)


# ---------------------------------------------------------------------- the proof


def test_a_reader_that_errs_leads_to_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader takes `-` for `+`: without the proof, the loop would add."""
    monkeypatch.setitem(stack_machine._BINARY, "-", ast.Add)
    proved_formula.cache_clear()
    with pytest.raises(NotInlined, match="other instructions"):
        proved_formula((lambda x, y: x - y).__code__)
    proved_formula((lambda x, y: x + y).__code__)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("lambda x: x + 1", "lambda x: x + 1.0"),
        ("lambda x: x + 1", "lambda x: x + True"),
        ("lambda x: x + 0.0", "lambda x: x + -0.0"),
        ("lambda x: x in (1, 2)", "lambda x: x in (1, 2.0)"),
        ("lambda x: x.a", "lambda x: x.b"),
        ("lambda x, y: x", "lambda x, y: y"),
        ("lambda x, y: x - y", "lambda x, y: y - x"),
        ("lambda x, y: 0 <= x < y", "lambda x, y: 0 <= x <= y"),
        ("lambda x, y: x < y < 3", "lambda x, y: (x < y) < 3"),
        ("lambda x, y: x if 0 < x < y else 3", "lambda x, y: x if 0 < x and x < y else 3"),
        ("lambda x: G", "lambda x: H"),
        ("lambda x, y: x and y", "lambda x, y: x or y"),
        ("lambda x, y: x if y else 1", "lambda x, y: 1 if y else x"),
        ("lambda x: x is None", "lambda x: x is not None"),
        ("lambda x: f'{x!r}'", "lambda x: f'{x!s}'"),
        ("lambda x: x[1:]", "lambda x: x[:1]"),
    ],
)
def test_functions_that_differ_do_not_prove_each_other(written: str, read: str) -> None:
    written_code, read_code = eval(written).__code__, eval(read).__code__
    formula = control_flow.ControlFlow(read_code, read_code.co_varnames).formula()
    assert proofs._is_proved(formula, read_code)
    assert not proofs._is_proved(formula, written_code)
