"""DataSets whose rows, keys or results do not fit what the program says of them: one sentence names what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.data_sets import data_set_environment, rows_of
from yarrow.batch.dataset import DataSet, Order
from yarrow.common import Types
from yarrow.common.types import Row
from yarrow.container.operators.data_set import partition_rows
from yarrow.container.protocol.failure import OperatorFailure, failure_cause
from yarrow.runtime.data.errors import SerializationError

PAIRS = [("a", 1), ("b", 5), ("a", 3)]


def of(*rows: Any) -> DataSet:
    """Rows of no declared type, which an operator has put out."""
    return data_set_environment().from_collection(list(rows)).map(lambda row: row).name("before")


def told(data: DataSet, operator: str, **options: Any) -> str:
    """The text of a failed run, without frames of the engine, which names the operator."""
    with pytest.raises(OperatorFailure) as failed:
        rows_of(data, **options)
    cause = failure_cause(failed.value)
    assert cause.operator_name == operator
    text = cause.stacktrace
    assert "File " not in text and "Traceback" not in text
    return text


def first(one: Any, other: Any) -> Any:
    return one


NO_FIELD_7 = (
    r"the record \('.', \d\) has no field 7: it has 2 fields, and positions count from 0\. Name a field"
)
LACKS: dict[str, tuple[Callable[[DataSet], DataSet], str]] = {
    "a group": (lambda data: data.group_by(7).reduce(first), NO_FIELD_7),
    "a group of several fields": (lambda data: data.group_by(0, 7).reduce(first), NO_FIELD_7),
    "names of fields": (lambda data: data.group_by("f0", 7).reduce(first), NO_FIELD_7),
    "a nested field": (lambda data: data.group_by("f1.x").reduce(first), "the record . has no field 'x'"),
    "a field of a tuple by name": (lambda data: data.group_by("f7").reduce(first), NO_FIELD_7),
    "another name": (
        lambda data: data.group_by("nme").reduce(first),
        r"has no field 'nme': it is of type tuple",
    ),
    "a projection": (lambda data: data.project(0, 7), NO_FIELD_7),
    "a sum": (lambda data: data.group_by(0).sum(7), NO_FIELD_7),
    "the least row": (lambda data: data.group_by(0).min_by(7), NO_FIELD_7),
    "a sorted partition": (lambda data: data.sort_partition(7, Order.ASCENDING), NO_FIELD_7),
    "a sorted group": (
        lambda data: data.group_by(0).sort_group(7, Order.ASCENDING).reduce_group(list),
        NO_FIELD_7,
    ),
    "a combined group": (lambda data: data.group_by(7).combine_group(list), NO_FIELD_7),
}


@pytest.mark.parametrize("case", LACKS)
def test_a_field_that_a_record_lacks_is_named(case: str) -> None:
    operation, sentence = LACKS[case]
    assert re.search(sentence, told(operation(of(*PAIRS)).name("asks"), "asks"))


def test_a_record_without_fields_and_a_row_with_few_say_so() -> None:
    assert "the record 3 has no field 0: it is of type int" in told(of(3).project(0).name("asks"), "asks")
    assert "has no field 1: it has 1 fields" in told(of(Row(a=1)).group_by(1).sum(0).name("asks"), "asks")


class Plain:
    """No key."""


@pytest.mark.parametrize("key", [lambda row: [row[0]], lambda row: {row[0]: 1}, lambda row: Plain()])
def test_a_key_that_cannot_be_one_names_the_operator_of_the_groups(key: Any) -> None:
    text = told(of(*PAIRS).group_by(key).reduce(first).name("groups"), "groups")
    assert re.search(
        r"Operator 'groups': a value of type .* cannot be a key: its type has no canonical form", text
    )
    assert "  in the exchange before operator 'groups'\n" in text


@pytest.mark.parametrize(
    "operation",
    [
        lambda data: data.sort_partition(1, Order.ASCENDING),
        lambda data: data.sort_partition(1, Order.DESCENDING),
        lambda data: data.sort_partition(0, Order.ASCENDING).sort_partition(1, Order.ASCENDING),
        lambda data: data.group_by(0).sort_group(1, Order.ASCENDING).reduce_group(list),
        lambda data: data.group_by(0).sort_group(1, Order.ASCENDING).combine_group(list),
    ],
    ids=["ascending", "descending", "second field", "group", "combined group"],
)
def test_rows_without_an_order_are_told_by_two_of_them(operation: Callable[[DataSet], DataSet]) -> None:
    rows = of(("a", None), ("a", 1), ("a", "x"), ("a", 3)).rebalance().map(lambda row: row).set_parallelism(1)
    text = told(operation(rows).set_parallelism(1).name("sorts"), "sorts")
    assert re.search(
        r"the rows \('a', [13]\) and \('a', 'x'\) cannot be sorted: '<' not supported between", text
    )


def test_runs_on_disk_without_an_order_are_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_rows, "_SHARE", 1 << 62)
    rows = of((1, "x"), (2, 5)).rebalance().map(lambda row: row).set_parallelism(1)
    sorted_rows = rows.sort_partition(1, Order.ASCENDING).set_parallelism(1).name("sorts")
    assert "cannot be sorted: '<' not supported between" in told(sorted_rows, "sorts")


#: No result of the type that functions declare.
SEVEN: Any = 7
RESULTS: dict[str, Callable[[DataSet], DataSet]] = {
    "flat_map": lambda data: data.flat_map(lambda row: row[1]),
    "map_partition": lambda data: data.map_partition(lambda rows: SEVEN),
    "reduce_group": lambda data: data.group_by(0).reduce_group(lambda rows: SEVEN),
    "co_group": lambda data: data.co_group(data).where(0).equal_to(0).with_(lambda ones, others: SEVEN),
}


@pytest.mark.parametrize("case", RESULTS)
def test_a_result_that_is_no_iterable_is_shown(case: str) -> None:
    text = told(RESULTS[case](of(("a", 7))).name("gives"), "gives")
    assert "the function gave 7 of type int, where an iterable of results was expected. Return a list" in text


@pytest.mark.parametrize("combines", [True, False], ids=["folded", "as they come"])
def test_a_value_that_does_not_fit_an_aggregate_is_named(combines: bool) -> None:
    environment = data_set_environment(1, {"execution.batch.combine": str(combines).lower()})
    data = environment.from_collection([("a", 1), ("a", "x")]).group_by(0).sum(1).name("sums")
    assert "field 1 of the record ('a', 'x') does not fit those of the records before it: " in told(
        data, "sums"
    )


class Odd:
    """A value whose addition and order are the program's own, and fail."""

    def __add__(self, other: object) -> Odd:
        raise TypeError("odd")

    __lt__ = __add__


@pytest.mark.parametrize(
    "operation",
    [
        lambda data: data.group_by(0).sum(1),
        lambda data: data.sort_partition(1, Order.ASCENDING),
        lambda data: data.flat_map(lambda row: (Odd() + value for value in row)),
    ],
    ids=["sum", "order", "results"],
)
def test_an_error_of_the_programs_own_code_keeps_its_lines(operation: Callable[[DataSet], DataSet]) -> None:
    rows = data_set_environment(1).from_collection([1, 2]).map(lambda number: ("a", Odd()))
    with pytest.raises(OperatorFailure) as failed:
        rows_of(operation(rows).name("fails"))
    cause = failure_cause(failed.value)
    assert (cause.operator_name, cause.exception_name, cause.message) == (
        "fails",
        "builtins.TypeError",
        "odd",
    )
    assert cause.stacktrace.splitlines()[1].startswith(f'  File "{__file__}"')


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda data: data.map(lambda: 1),
            r"^map calls its function with \(value\), but .*<lambda> at .* takes \(\)",
        ),
        (
            lambda data: data.reduce(lambda a: a),
            r"^reduce calls its function with \(value1, value2\), but .* takes \(a\): too many",
        ),
        (
            lambda data: data.join(data).where(0).equal_to(0).with_(lambda pair: pair),
            r"^with_ calls its function with \(first, second\), but .* takes \(pair\): too many",
        ),
    ],
    ids=["map", "reduce", "join"],
)
def test_a_function_of_other_arguments_is_refused_at_the_call(call: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        call(of(*PAIRS))


def test_a_value_that_is_not_of_its_declared_type_names_the_operator_that_gave_it() -> None:
    declared = of(*PAIRS).map(lambda row: row, Types.TUPLE([Types.STRING(), Types.STRING()])).name("declares")
    with pytest.raises(
        SerializationError, match=r"^operator 'declares': field 1 of row 0: expected a str, got int \d"
    ):
        rows_of(declared)
