"""on_error of functions: which records are left out, what of them leaves, and what their letters hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from yarrow.common import Row
from yarrow.common.typeinfo import Types
from yarrow.datastream import (
    CoMapFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from yarrow.datastream.connectors import DeadLetter
from yarrow.datastream.connectors.dead_letters import RECORD_PICKLED, RECORD_SHOWN, RECORD_TYPED
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.keys import encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.graph.translation.plan import execution_plan, execution_plan_of_job
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

ODD = [1, 3, 5, 7, 9]


def fails_at_even(value: int) -> int:
    if value % 2 == 0:
        raise ValueError(f"{value} is even")
    return value


def spread(value: int) -> Iterator[int]:
    yield value
    yield fails_at_even(value)


class Spread(ProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield OutputTag("aside", Types.INT()), value
        yield fails_at_even(value)


def with_letters(stream: DataStream) -> list[DataStream]:
    stream = stream.uid("the function").on_error("dead_letter")
    return [stream, stream.dead_letters()]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda s: s.map(fails_at_even), ODD),
        (lambda s: s.filter(fails_at_even), ODD),
        (lambda s: s.flat_map(spread), [each for each in ODD for _ in range(2)]),
        (lambda s: s.process(Spread()), ODD),
        (lambda s: s.map(fails_at_even).map(str, Types.STRING()), None),
    ],
)
@pytest.mark.parametrize("stamped", [False, True])
def test_failing_records_leave_nothing_but_a_letter(function: Any, expected: Any, stamped: bool) -> None:
    if expected is None:
        # The first map fails the job: on_error concerns the second one alone.
        with (
            pytest.raises(FragmentFailedError),
            OperatorHarness(lambda s: with_letters(function(s))) as failing,
        ):
            failing.push(2)
            failing.run()
        return
    with OperatorHarness(lambda s: with_letters(function(s)), types=[Types.INT()]) as harness:
        harness.push(*range(1, 11), timestamps=range(10) if stamped else None)
        harness.end()
        assert harness.outputs(0) == expected
        letters: list[DeadLetter] = harness.outputs(1)
        stamps = [letter.timestamp for letter in letters]
    rows = [serializer_for(Types.INT()).load_rows(letter.raw or b"")[0] for letter in letters]
    assert rows == [2, 4, 6, 8, 10]
    assert stamps == ([1, 3, 5, 7, 9] if stamped else [None] * 5)
    for row, letter in zip(rows, letters, strict=True):
        assert letter.error == f"ValueError: {row} is even" and letter.operator == "the function"
        assert "fails_at_even" in letter.traceback and "yarrow chain" not in letter.traceback
        assert (letter.encoding, letter.split, letter.position, letter.input) == (RECORD_TYPED, "", -1, 0)


def test_side_outputs_of_a_failing_record_do_not_leave() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        made = stream.process(Spread(), Types.INT()).on_error("skip")
        return [made, made.get_side_output(OutputTag("aside", Types.INT()))]

    with OperatorHarness(fragment) as harness:
        harness.push(*range(1, 11))
        harness.end()
        assert harness.outputs(0) == ODD and harness.outputs(1) == ODD
        assert [v for k, v in harness.metrics().items() if k.endswith("numRecordsInErrors")] == [5]


def test_results_keep_what_they_were_when_the_function_emitted_them() -> None:
    def grows(value: int) -> Iterator[list[int]]:
        shared: list[int] = []
        for number in range(value):
            shared.append(number)
            yield shared

    with OperatorHarness(lambda s: s.flat_map(grows).on_error("skip")) as harness:
        harness.push(3)
        harness.end()
        assert harness.output == [[0], [0, 1], [0, 1, 2]]


def test_a_record_of_no_type_is_pickled_and_one_that_fits_no_type_is_shown() -> None:
    for declared, encoding in ((None, RECORD_PICKLED), (Types.INT(), RECORD_SHOWN)):

        def fragment(stream: DataStream, declared: Any = declared) -> list[DataStream]:
            return with_letters(stream.map(lambda x: x, declared).map(lambda x: x["n"]))

        with OperatorHarness(fragment) as harness:
            harness.push("no mapping")
            harness.end()
            (letter,) = harness.outputs(1)
        assert letter.encoding == encoding and b"no mapping" in letter.raw


def changes(record: Any) -> Any:
    """Changes the record at its top and below, and fails then."""
    record["n"] = 0
    record["below"].append(0)
    raise ValueError("changed")


class ChangesSecond(CoMapFunction):  # type: ignore[type-arg]
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return changes(value)


@pytest.mark.parametrize(
    "declared", [None, Types.ROW_NAMED(["n", "below"], [Types.INT(), Types.LIST(Types.INT())])]
)
@pytest.mark.parametrize(
    "function",
    [
        lambda s: s.map(changes),
        lambda s: s.filter(changes),
        lambda s: s.connect(s).map(ChangesSecond()),
    ],
)
def test_a_letter_holds_the_record_as_it_came(function: Any, declared: Any) -> None:
    def came() -> Any:
        return {"n": 7, "below": [1]} if declared is None else Row(n=7, below=[1])

    with OperatorHarness(lambda s: with_letters(function(s)), types=[declared]) as harness:
        harness.push(came())
        harness.end()
        (letter,) = harness.outputs(1)
    assert letter.error == "ValueError: changed"
    assert serializer_for(declared).load_rows(letter.raw) == [came()]


def test_with_object_reuse_a_letter_holds_the_record_as_the_function_left_it() -> None:
    env_settings = {"pipeline.object-reuse": "true"}
    with OperatorHarness(lambda s: with_letters(s.map(changes)), configuration=env_settings) as harness:
        harness.push({"n": 7, "below": [1]})
        harness.end()
        (letter,) = harness.outputs(1)
    assert serializer_for(None).load_rows(letter.raw) == [{"n": 0, "below": [1, 0]}]


class Uncopyable(dict[str, Any]):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("there is one only")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("there is one only")


def test_a_record_that_cannot_be_copied_goes_aside_as_text() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        return with_letters(stream.map(lambda n: Uncopyable(n=n, below=[])).map(changes))

    with OperatorHarness(fragment) as harness:
        harness.push(7)
        harness.end()
        (letter,) = harness.outputs(1)
    assert letter.encoding == RECORD_SHOWN and letter.error == "ValueError: changed"


class Counts(KeyedProcessFunction):  # type: ignore[type-arg]
    def open(self, runtime_context: RuntimeContext) -> None:
        self._count: Any = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[tuple[str, int]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        fails_at_even(value[1])
        yield value[0], count


def test_a_keyed_letter_has_its_key_and_changed_state_stays() -> None:
    with OperatorHarness(lambda s: with_letters(s.key_by(lambda r: r[0]).process(Counts()))) as harness:
        harness.push(("a", 1), ("a", 2), ("b", 2), ("a", 3))
        harness.end()
        assert harness.outputs(0) == [("a", 1), ("a", 3)]
        assert [letter.key for letter in harness.outputs(1)] == [encode_key("a"), encode_key("b")]


def test_letters_tell_the_input_of_a_function_of_two_streams() -> None:
    class Both(CoMapFunction):  # type: ignore[type-arg]
        def map1(self, value: int) -> int:
            return fails_at_even(value)

        def map2(self, value: int) -> int:
            return -fails_at_even(value)

    with OperatorHarness(lambda a, b: with_letters(a.connect(b).map(Both())), inputs=2) as harness:
        harness.push(1, 2)
        harness.push(3, 4, 6, input=1)
        harness.end()
        assert harness.outputs(0) == [1, -3]
        assert [letter.input for letter in harness.outputs(1)] == [0, 1, 1]


def test_errors_of_the_next_function_are_not_those_of_this_one() -> None:
    with (
        pytest.raises(FragmentFailedError, match="1 is odd"),
        OperatorHarness(lambda s: s.map(fails_at_even).on_error("skip").map(fails_at_odd)) as harness,
    ):
        harness.push(2, 1)
        harness.run()


def fails_at_odd(value: int) -> int:
    raise ValueError(f"{value} is odd")


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        # The operator looks after each slice of work, and the clock may end a slice behind any record.
        ({"max_per_minute": 2}, r"operator 'Map' failed at [3-5] records within a minute.*max_per_minute=2"),
        ({"max_share": 0.4}, r"operator 'Map' failed at 5 of the latest 10 records.*max_share=0.4"),
    ],
)
def test_past_a_bound_the_job_fails(bounds: dict[str, Any], expected: str) -> None:
    with (
        pytest.raises(FragmentFailedError, match=f"(?s){expected}"),
        OperatorHarness(lambda s: s.map(fails_at_even).on_error("skip", **bounds)) as harness,
    ):
        harness.push(*range(1, 11))
        harness.end()
        harness.run()


def test_within_its_bounds_the_job_goes_on() -> None:
    bounds: dict[str, Any] = {"max_per_minute": 5, "max_share": 0.5}
    with OperatorHarness(
        lambda s: s.map(str).map(int).map(fails_at_even).on_error("skip", **bounds)
    ) as harness:
        harness.push(*range(1, 11))
        harness.end()
        assert harness.output == ODD


def test_what_no_other_record_would_escape_fails_the_job() -> None:
    def out_of_memory(value: int) -> int:
        raise MemoryError("no more")

    with (
        pytest.raises(FragmentFailedError, match="no more"),
        OperatorHarness(lambda s: s.map(out_of_memory).on_error("skip")) as harness,
    ):
        harness.push(1)
        harness.run()


def test_what_cannot_leave_out_a_record_is_refused_when_it_is_built() -> None:
    def refused(fragment: Any, expected: str) -> None:
        with pytest.raises(InvalidProgramError, match=expected):
            OperatorHarness(fragment)

    refused(
        lambda s: s.on_error("skip"),
        r"on_error\('skip'\) is refused for operator .*on_error of the source's builder",
    )
    refused(
        lambda s: s.key_by(lambda x: x).in_event_time_order().on_error("dead_letter"),
        r"operator '.*': it does not take its records one by one",
    )
    refused(lambda s: s.rebalance().on_error("skip"), "concerns an operator")
    refused(lambda s: s.map(str).dead_letters(), r"makes no dead letters. Call on_error\(\"dead_letter\"\)")
    with pytest.raises(ValueError, match="on_error takes"):
        OperatorHarness(lambda s: s.map(str).on_error("ignore"))


def test_plans_show_the_handling_and_who_reads_the_letters() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    made = env.from_sequence(1, 9).map(fails_at_even, Types.LONG()).name("the map")
    made = made.on_error("dead_letter", max_per_minute=5, max_share=0.25)
    made.filter(bool).name("the filter").on_error("skip").print()
    made.dead_letters().map(lambda letter: letter.error).name("<letters>").print()
    said = {
        "the map": "dead_letter to {}; at most 5 a minute in each subtask; at most a share of 0.25",
        "the filter": "skip",
    }
    plain = {name: text.format("<letters>") for name, text in said.items()}
    plan = execution_plan(env.get_stream_graph(clear_transformations=False))
    assert {node["type"]: node["on_error"] for node in plan["nodes"] if "on_error" in node} == plain
    graph = env.get_job_graph()
    nodes = execution_plan_of_job(graph)["nodes"]
    assert {node["type"]: node["on_error"] for node in nodes if "on_error" in node} == plain
    shown = {name: text.format("&lt;letters&gt;") for name, text in said.items()}
    of_vertices = [entry for node in graph.plan["nodes"] for entry in node.get("error_handling", ())]
    assert {entry["operator"]: entry["on_error"] for entry in of_vertices} == shown
