"""Names why the modes differ in a sink, as far as metrics of both runs and the program's functions tell.

Owner: the main thread. Must not run jobs: the caller brings what the runs have told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

import msgspec

from yarrow.cli.verification.captured_graph import Place, operator_at, upstream_of, with_functions
from yarrow.cli.verification.commuting_check import CommutingCheck
from yarrow.cli.verification.comparison import KeyDifference
from yarrow.container.codegen.user_functions import load_function
from yarrow.container.metrics.metric_registry import metric_scope
from yarrow.container.operators.event_time import LATE_RECORDS
from yarrow.container.state.timers import IGNORED_TIMERS
from yarrow.runtime.graph.job_graph import JobGraph, OperatorDescriptor
from yarrow.runtime.rpc.messages import ExecutionGraphDetails

#: Methods by which a function asks for processing time.
_PROCESSING_TIME: Final = frozenset({"current_processing_time", "register_processing_time_timer"})
_RESULT: Final = "yarrow verify"


@dataclass(frozen=True)
class RunFacts:
    """What one run has told besides its rows."""

    #: Sums over subtasks by (position of the vertex, name of the metric).
    metrics: Mapping[tuple[int, str], float] = field(default_factory=dict)
    #: Spark's id of the application; "" for a stream.
    spark_application: str = ""

    @staticmethod
    def of(graph: JobGraph, details: ExecutionGraphDetails) -> RunFacts:
        """The facts in the details of an ended job."""
        positions = {vertex.id: at for at, vertex in enumerate(graph.vertices)}
        sums: dict[tuple[int, str], float] = {}
        for vertex in details.vertices:
            for attempt in vertex.subtasks:
                for name, value in attempt.metrics.items():
                    key = positions[vertex.vertex_id], name
                    sums[key] = sums.get(key, 0.0) + value
        return RunFacts(sums, details.spark_application)

    def metric(self, graph: JobGraph, place: Place, name: str) -> int:
        """The metric of an operator; 0 if it has none."""
        scope = metric_scope(operator_at(graph, place).name)
        return int(self.metrics.get((place.vertex, f"{scope}.{name}"), 0))


def reduces_of(graph: JobGraph, sink: Place) -> list[Place]:
    """The reduce functions of users whose results reach a sink."""
    return [place for place in upstream_of(graph, sink) if operator_at(graph, place).spec.folds_by_function]


def with_checks(graph: JobGraph, places: Sequence[Place]) -> JobGraph:
    """The graph with a CommutingCheck in place of each of these reduce functions."""
    checks: dict[Place, object] = {}
    for place in places:
        operator = operator_at(graph, place)
        spec: Any = operator.spec
        checks[place] = CommutingCheck(spec.function, operator.name, _result_name(place))
    return with_functions(graph, checks, is_rich=True)


def examples_in(accumulators: Mapping[str, Any], places: Sequence[Place]) -> dict[Place, str]:
    """What the checks have found: by operator an example in which the order of records counts."""
    found = {place: accumulators.get(_result_name(place), "") for place in places}
    return {place: example for place, example in found.items() if example}


def _result_name(place: Place) -> str:
    return f"{_RESULT} {place.vertex}.{place.operator}"


def causes_of(
    graph: JobGraph,
    sink: Place,
    difference: KeyDifference,
    streaming: RunFacts,
    batch: RunFacts,
    examples: Mapping[Place, str],
) -> list[str]:
    """The known causes, one sentence or two each, the nearest operator first; never empty."""
    if difference.is_rounding:
        return [
            "The values differ in rounding alone. Floats were added in another order: use integers, Decimal, or"
            " math.fsum over a list."
        ]
    upstream = upstream_of(graph, sink)
    found = [
        cause
        for place in upstream
        for cause in _of_operator(graph, place, streaming, batch, examples.get(place, ""))
    ]
    return found or [_unknown(graph, upstream)]


def _of_operator(
    graph: JobGraph, place: Place, streaming: RunFacts, batch: RunFacts, example: str
) -> Iterator[str]:
    operator = operator_at(graph, place)
    if ignored := batch.metric(graph, place, IGNORED_TIMERS):
        yield (
            f"'{operator.name}' registered {ignored} timers in callbacks of timers. BATCH ignores them, since their"
            " key has ended."
        )
    if late := streaming.metric(graph, place, LATE_RECORDS):
        yield (
            f"In STREAMING {late} late records reached '{operator.name}', behind the watermark. In BATCH no record is"
            " late."
        )
    if used := sorted(_names_in(operator) & _PROCESSING_TIME):
        yield (
            f"'{operator.name}' uses processing time ({', '.join(used)}). BATCH fires its timers at the end of each"
            " key, and the clock differs in each run."
        )
    if example:
        yield f"The reduce of '{operator.name}' depends on the order or grouping of records: {example}."


def _unknown(graph: JobGraph, upstream: Sequence[Place]) -> str:
    operators = [operator_at(graph, place) for place in upstream]
    keyed = [each.name for each in operators if each.spec.is_rolling or any(each.spec.selector_of_each_input)]
    if not keyed:
        return "No cause is known. Look for functions that read a clock, random numbers or state outside."
    return (
        f"No cause is certain. STREAMING gives '{keyed[0]}' the records of a key as they arrive, BATCH gives them in"
        " order of event time. Check whether that order changes its results."
    )


def _names_in(operator: OperatorDescriptor) -> set[str]:
    """Names of attributes and globals in the code of the operator's function."""
    blob = msgspec.structs.asdict(operator.spec).get("function")
    if not isinstance(blob, bytes):
        return set()
    function = load_function(blob, operator.name)
    # Not by getattr, which would run properties of the user's.
    members = {name: value for each in reversed(type(function).__mro__) for name, value in vars(each).items()}
    methods = [value for name, value in members.items() if not name.startswith("__")]
    return {name for method in (function, *methods) for code in _code_of(method) for name in _all_names(code)}


def _code_of(function: Any) -> Iterator[CodeType]:
    if isinstance(function, MethodType | staticmethod | classmethod):
        function = function.__func__
    if isinstance(function, FunctionType):
        yield function.__code__


def _all_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_names(constant)
