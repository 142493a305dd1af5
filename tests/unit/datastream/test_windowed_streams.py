"""Windows in a program: names, parallelism, types, and what is refused at the line that asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from yarrow.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from yarrow.datastream.data_stream import AllWindowedStream, WindowedStream, operator_of
from yarrow.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from yarrow.datastream.window import (
    CountEvictor,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    NeverTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.window_spec import AllTumblingWindowOperator, WindowOperator

ROW = Types.TUPLE([Types.STRING(), Types.LONG()])
SECOND = Time.seconds(1)


class Stamped(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


STAMPED = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamped())


def without_time() -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
    return env.from_collection([("a", 1)], ROW)


def rows() -> DataStream:
    return without_time().assign_timestamps_and_watermarks(STAMPED)


def windowed(assigner: Any = None) -> WindowedStream:
    keyed = rows().key_by(lambda row: row[0], Types.STRING())
    return keyed.window(assigner or TumblingEventTimeWindows.of(SECOND))


def whole() -> AllWindowedStream:
    return rows().window_all(TumblingEventTimeWindows.of(SECOND))


def add(first: Any, second: Any) -> Any:
    return first[0], first[1] + second[1]


class Apply(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return inputs


class ApplyAll(AllWindowFunction[Any, Any, Any]):
    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return inputs


class Process(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        return elements


def test_a_windowed_stream_becomes_an_operator_behind_its_key() -> None:
    late = OutputTag("late", ROW)
    made = windowed().allowed_lateness(5).side_output_late_data(late).trigger(CountTrigger.of(2)).reduce(add)
    operator = operator_of(made)
    assert operator.name == "TumblingEventTimeWindows"
    assert operator.description == (
        "Window(TumblingEventTimeWindows, CountTrigger, reduce), key by key because of its trigger CountTrigger"
    )
    assert isinstance(operator.spec, WindowOperator)
    assert (operator.spec.allowed_lateness_ms, operator.spec.late_tag) == (5, "late")
    assert (operator.parallelism, operator.output_type) == (3, ROW)
    assert operator.state_key_type == Types.STRING()


def test_the_plan_says_which_option_takes_the_general_way() -> None:
    def described(made: DataStream) -> str | None:
        return operator_of(made).description

    assert described(windowed().reduce(add)) == "Window(TumblingEventTimeWindows, EventTimeTrigger, reduce)"
    assert described(windowed().aggregate(Counts())) == (
        "Window(TumblingEventTimeWindows, EventTimeTrigger, aggregate)"
    )
    assert described(windowed().apply(Apply())) == (
        "Window(TumblingEventTimeWindows, EventTimeTrigger, apply), key by key because its function takes all records"
    )

    sessions = rows().key_by(str).window(EventTimeSessionWindows.with_gap(SECOND))
    assert described(sessions.reduce(add, Apply())) == (
        "Window(EventTimeSessionWindows, EventTimeTrigger, reduce)"
    )
    assert described(sessions.trigger(CountTrigger.of(2)).aggregate(Counts())) == (
        "Window(EventTimeSessionWindows, CountTrigger, aggregate), key by key because of its trigger CountTrigger"
    )
    counts = rows().key_by(str).count_window(3)
    assert described(counts.reduce(add)) == "Window(CountTumblingWindowAssigner, PurgingTrigger, reduce)"
    assert described(counts.reduce(add, Apply())) == (
        "Window(CountTumblingWindowAssigner, PurgingTrigger, reduce), key by key because of its window function, which"
        " gets the window's number"
    )
    assert described(rows().key_by(str).count_window(3, 1).reduce(add)) == (
        "Window(CountSlidingWindowAssigner, PurgingTrigger, reduce), key by key because of its assigner"
        " CountSlidingWindowAssigner"
    )
    assert described(rows().count_window_all(3).trigger(CountTrigger.of(3)).reduce(add)) == (
        "Window(CountTumblingWindowAssigner, CountTrigger, reduce), key by key because of its trigger CountTrigger"
    )

    sliding = windowed(SlidingEventTimeWindows.of(Time.seconds(2), SECOND))
    assert described(sliding.reduce(add)) == "Window(SlidingEventTimeWindows, EventTimeTrigger, reduce)"
    assert described(sliding.aggregate(Counts())) == (
        "Window(SlidingEventTimeWindows, EventTimeTrigger, aggregate)"
    )
    assert described(sliding.aggregate(WithoutMerge())) == (
        "Window(SlidingEventTimeWindows, EventTimeTrigger, aggregate), key by key because merge of WithoutMerge"
        " returns nothing"
    )
    assert described(sliding.aggregate(MayMerge())) == (
        "Window(SlidingEventTimeWindows, EventTimeTrigger, aggregate)"
    )
    assert described(sliding.trigger(CountTrigger.of(2)).reduce(add)) == (
        "Window(SlidingEventTimeWindows, CountTrigger, reduce), key by key because of its trigger CountTrigger"
    )
    assert described(windowed(sliding._assigner).allowed_lateness(1).reduce(add)) == (
        "Window(SlidingEventTimeWindows, EventTimeTrigger, reduce)"
    )

    class OwnWindows(TumblingEventTimeWindows):
        """May mean anything."""

    assert described(windowed(OwnWindows(1000, 0)).reduce(add)) == (
        "Window(OwnWindows, EventTimeTrigger, reduce), key by key because of its assigner OwnWindows"
    )


def test_the_plan_names_the_evictor_and_what_it_makes_slow() -> None:
    evicting = windowed().evictor(CountEvictor.of(2))
    assert operator_of(evicting.apply(Apply())).description == (
        "Window(TumblingEventTimeWindows, EventTimeTrigger, CountEvictor, apply)"
    )
    made = evicting.trigger(CountTrigger.of(2)).reduce(add)
    made.print()
    plan = json.loads(made.get_execution_environment().get_execution_plan())
    assert (
        "Window(TumblingEventTimeWindows, CountTrigger, CountEvictor, reduce), keeps all records because of its evictor"
    ) in [node["contents"] for node in plan["nodes"]]


def test_windows_with_an_evictor_keep_rows_of_the_type_of_the_stream() -> None:
    accumulators = Types.LIST(Types.LONG())
    for evictor, kept in ((None, accumulators), (CountEvictor.of(2), ROW)):
        windows = windowed() if evictor is None else windowed().evictor(evictor)
        spec: Any = operator_of(windows.aggregate(Counts(), accumulator_type=accumulators)).spec
        assert spec.kept_type == kept.to_spec()


class Counts(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        return [*accumulator, 1]

    def get_result(self, accumulator: list[int]) -> int:
        return len(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


class WithoutMerge(Counts):
    """As many programs have it, since windows that do not merge never call it."""

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        if acc_a is acc_b:
            return None  # type: ignore[return-value]
        raise NotImplementedError


class MayMerge(Counts):
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b if acc_b else None


def test_windows_of_a_whole_stream_have_one_subtask() -> None:
    made = whole().reduce(add)
    operator = operator_of(made)
    assert isinstance(operator.spec, AllTumblingWindowOperator)
    assert (operator.parallelism, operator.max_parallelism, operator.spec.rescalable) == (1, 1, False)
    with pytest.raises(InvalidProgramError, match="can only run with parallelism 1, not 2"):
        made.set_parallelism(2)


def test_a_stream_of_windows_knows_its_program_and_its_records() -> None:
    stream = rows()
    windows = stream.key_by(lambda row: row[0]).window(EventTimeSessionWindows.with_gap(SECOND))
    assert windows.get_execution_environment() is stream.get_execution_environment()
    assert windows.get_input_type() == ROW
    all_windows = stream.window_all(EventTimeSessionWindows.with_gap(SECOND))
    assert all_windows.get_execution_environment() is stream.get_execution_environment()
    assert all_windows.get_input_type() == ROW
    undeclared = stream.map(str).window_all(EventTimeSessionWindows.with_gap(SECOND))
    assert undeclared.get_input_type() == Types.PICKLED_BYTE_ARRAY()


def test_results_have_the_declared_type_alone() -> None:
    assert windowed().apply(Apply()).transformation.output_type is None
    assert windowed().process(Process(), ROW).transformation.output_type == ROW
    assert windowed().reduce(add, Apply()).transformation.output_type is None


def test_windows_of_event_time_need_records_with_times() -> None:
    plain = without_time().map(lambda row: row).filter(bool)
    joined = plain.union(plain.map(str))
    for stream in (plain, joined, plain.get_execution_environment().from_sequence(1, 3)):
        windows = stream.key_by(str).window(TumblingEventTimeWindows.of(SECOND))
        with pytest.raises(InvalidProgramError, match=r"window\(TumblingEventTimeWindows\): nothing before"):
            windows.reduce(add)
    # These strategies leave rows without a time.
    for strategy in (WatermarkStrategy.no_watermarks(), WatermarkStrategy.for_monotonous_timestamps()):
        windows = (
            plain.assign_timestamps_and_watermarks(strategy)
            .key_by(str)
            .window(TumblingEventTimeWindows.of(SECOND))
        )
        with pytest.raises(
            InvalidProgramError, match="nothing before these windows gives records a timestamp"
        ):
            windows.reduce(add)
    with pytest.raises(InvalidProgramError, match="assign_timestamps_and_watermarks before key_by"):
        plain.window_all(TumblingEventTimeWindows.of(SECOND)).reduce(add)
    # Windows stamp their results, also those of processing time.
    first = plain.key_by(str).window(TumblingProcessingTimeWindows.of(SECOND)).reduce(add)
    first.key_by(str).window(TumblingEventTimeWindows.of(SECOND)).reduce(add)
    stamped = plain.assign_timestamps_and_watermarks(STAMPED)
    plain.union(stamped).key_by(str).window(TumblingEventTimeWindows.of(SECOND)).reduce(add)


def test_ingestion_time_is_a_time() -> None:
    stream = without_time()
    stream.get_execution_environment().set_stream_time_characteristic(TimeCharacteristic.INGESTION_TIME)
    stream.key_by(str).window(TumblingEventTimeWindows.of(SECOND)).reduce(add)


@pytest.mark.parametrize("lateness", [-1, 2.5, True, None])
def test_a_lateness_is_a_number_from_zero_on(lateness: Any) -> None:
    with pytest.raises(
        InvalidProgramError, match=r"allowed_lateness\(.*\): give whole milliseconds from 0 on"
    ):
        windowed().allowed_lateness(lateness)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no assigner": (lambda: rows().key_by(str).window(None), TypeError, "window takes a WindowAssigner"),  # type: ignore[arg-type]
    "no trigger": (lambda: windowed().trigger(None), TypeError, "trigger takes a Trigger"),  # type: ignore[arg-type]
    "no tag": (lambda: windowed().side_output_late_data("late"), TypeError, "takes an OutputTag"),  # type: ignore[arg-type]
    "size of a window": (
        lambda: TumblingEventTimeWindows.of(Time.seconds(0)), ValueError, "needs a size and a slide of at least 1 ms",
    ),
    "slide of a window": (
        lambda: SlidingEventTimeWindows.of(SECOND, Time.seconds(0)), ValueError, "a slide of at least 1 ms",
    ),
    "offset beyond the size": (
        lambda: TumblingEventTimeWindows.of(SECOND, SECOND), ValueError, "an offset smaller than the slide",
    ),
    "no gap extractor": (
        lambda: EventTimeSessionWindows.with_dynamic_gap(None),  # type: ignore[arg-type]
        TypeError,
        "with_dynamic_gap takes a SessionWindowTimeGapExtractor",
    ),
    "no trigger that purges": (
        lambda: PurgingTrigger.of(None), TypeError, r"PurgingTrigger.of takes a Trigger",  # type: ignore[arg-type]
    ),
    "count that is no number": (lambda: CountTrigger.of("3"), ValueError, "a whole number from 1 on, not '3'"),  # type: ignore[arg-type]
    "gap": (lambda: EventTimeSessionWindows.with_gap(Time.seconds(0)), ValueError, "gap .* at least 1 ms"),
    "count": (lambda: rows().key_by(str).count_window(0), InvalidProgramError, "size 0 and slide 0"),
    "slide of a count": (lambda: rows().count_window_all(3, -1), InvalidProgramError, "size 3 and slide -1"),
    "count that is none": (lambda: rows().count_window_all(2.5), InvalidProgramError, "whole numbers"),  # type: ignore[arg-type]
    "trigger that cannot merge": (
        lambda: rows().key_by(str).window(EventTimeSessionWindows.with_gap(SECOND)).trigger(NeverTrigger()),
        InvalidProgramError,
        r"trigger\(NeverTrigger\): the windows of EventTimeSessionWindows merge",
    ),
    "trigger by distance where windows merge": (
        lambda: rows().key_by(str).window(EventTimeSessionWindows.with_gap(SECOND)).trigger(DeltaTrigger.of(1, add)),
        InvalidProgramError,
        r"trigger\(DeltaTrigger\): the windows of EventTimeSessionWindows merge",
    ),
    "evictor that is none": (
        lambda: windowed().evictor(add), TypeError, r"evictor takes an Evictor, such as CountEvictor",  # type: ignore[arg-type]
    ),
    "class of evictors": (
        lambda: whole().evictor(CountEvictor), TypeError, r"evictor takes an Evictor, such as CountEvictor",  # type: ignore[arg-type]
    ),
    "a class": (lambda: windowed().apply(Apply), TypeError, r"not a class: pass Apply\(...\)"),
    "apply with a process function": (lambda: windowed().apply(Process()), TypeError, "apply takes a WindowFunction"),
    "process with an apply function": (
        lambda: windowed().process(Apply()), TypeError, "process takes a ProcessWindowFunction",
    ),
    "a function without a key on a keyed stream": (
        lambda: windowed().apply(ApplyAll()), TypeError, "apply takes a WindowFunction",
    ),
    "a function with a key on a whole stream": (
        lambda: whole().apply(Apply()), TypeError, "apply takes an AllWindowFunction",
    ),
    "a window function that is none": (
        lambda: windowed().reduce(add, add), TypeError, "takes a WindowFunction or a ProcessWindowFunction",
    ),
    "aggregate without an AggregateFunction": (
        lambda: windowed().aggregate(add), TypeError, "aggregate takes an AggregateFunction",  # type: ignore[arg-type]
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_bad_input_is_refused_at_its_line(what: str) -> None:
    build, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        build()
