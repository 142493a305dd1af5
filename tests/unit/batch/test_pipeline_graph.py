"""Declared stages become the JobGraph of a pipeline; one that could not run is refused by name."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from yarrow.batch import Pipeline, PipelineError, StageFiles, StageTable
from yarrow.common.configuration import Configuration
from yarrow.common.values.schedule import Schedule
from yarrow.runtime.config.options.pipeline import GLOBAL_JOB_PARAMETERS
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import InvalidOptionValue
from yarrow.runtime.graph.batch.due_times import with_due_time
from yarrow.runtime.graph.batch.pipeline_plan import is_pipeline, lines_of_pipeline, path_of, stage_of
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph, encode_job_graph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.graph.user_code import UnpicklableFunctionError


def nothing(spark: Any, **arguments: Any) -> None:
    """A stage that is never run."""


def table(name: str, path: str = "") -> StageTable:
    return StageTable(name, "n bigint", path=path)


def report_of_day(spark: Any, s: Any, *, due_date: str) -> Any:
    return s


def report_of(spark: Any, flights: Any, *, day: str, limit: int = 10) -> Any:
    return flights


def test_each_stage_is_a_vertex_behind_those_for_which_it_waits() -> None:
    pipeline = Pipeline("nightly", parameters={"day": "2013-12-01", "unused": 1})
    pipeline.read(StageFiles("airports", path="/data/airports"))
    pipeline.stage(
        "report",
        report_of,
        inputs=["flights"],
        outputs=table("report", "/reports/{day}"),
        after=["other"],
        retries=2,
    )
    pipeline.stage("read", nothing, inputs=["airports"], outputs=table("flights"))
    pipeline.stage("other", nothing)
    graph = pipeline.get_job_graph()
    assert decode_job_graph(encode_job_graph(graph)) == graph
    assert is_pipeline(graph)
    assert (graph.name, graph.job_type) == ("nightly", JobType.BATCH)
    assert [vertex.name for vertex in graph.vertices] == ["read", "other", "report"]
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    assert [(names[edge.source], names[edge.target]) for edge in graph.edges] == [
        ("read", "report"),
        ("other", "report"),
    ]
    report = stage_of(graph.vertices[2])
    assert path_of(report.outputs[0], report) == "/reports/2013-12-01"
    assert report.arguments == ("day",)
    assert list(lines_of_pipeline(graph)) == [
        "Stage 1: read",
        "    reads: airports (/data/airports)",
        "    leaves: flights (temporary)",
        "Stage 2: other",
        "Stage 3: report",
        "    reads: flights (temporary)",
        "    waits for: stage 1, 2",
        "    leaves: report (/reports/2013-12-01)",
        "    retries: 2",
    ]
    assert graph.plan["nodes"][2]["operator_strategy"] == "report (/reports/2013-12-01)"


def test_a_key_that_the_engine_alone_sets_is_refused_when_the_graph_is_built() -> None:
    pipeline = Pipeline(configuration=Configuration.from_dict({"spark.authenticate": "false"}))
    pipeline.stage("nothing", nothing)
    with pytest.raises(InvalidOptionValue, match=r"spark\.authenticate.*the engine sets it to 'true'"):
        pipeline.get_job_graph()


def test_a_stage_has_the_same_id_in_each_submission() -> None:
    graphs = []
    for _ in range(2):
        pipeline = Pipeline()
        pipeline.stage("read", nothing)
        graphs.append(pipeline.get_job_graph())
    assert graphs[0].vertices[0].id == graphs[1].vertices[0].id
    assert graphs[0].job_id != graphs[1].job_id


def _circle(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, inputs=["z"], outputs=table("x"))
    pipeline.stage("b", nothing, inputs=["x"], outputs=table("y"))
    pipeline.stage("c", nothing, inputs=["y"], outputs=table("z"))


def _itself(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, after=["a"])


def _two_of_a_name(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing)
    pipeline.stage("a", nothing)


def _two_outputs_of_a_name(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, outputs=table("x"))
    pipeline.stage("b", nothing, outputs=table("x"))


def _one_folder_in_another(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, outputs=table("x", "/out"))
    pipeline.stage("b", nothing, outputs=table("y", "/out/y"))


def _unknown_input(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, inputs=["x"])


def _unknown_stage(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, after=["b"])


def _unknown_parameter(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, outputs=table("x", "/out/{day}"))


def _missing_argument(pipeline: Pipeline) -> None:
    pipeline.read(table("flights", "/flights"))
    pipeline.stage("a", report_of, inputs=["flights"])


def _input_without_argument(pipeline: Pipeline) -> None:
    pipeline.read(table("flights", "/flights"), table("more", "/more"))
    pipeline.stage("a", report_of, inputs=["flights", "more"], parameters={"day": ""})


def _own_parameter_without_argument(pipeline: Pipeline) -> None:
    pipeline.read(table("flights", "/flights"))
    pipeline.stage("a", report_of, inputs=["flights"], parameters={"day": "", "month": 1})


def _parameter_that_cannot_travel(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, parameters={"day": object()})  # type: ignore[dict-item]


def _no_session(pipeline: Pipeline) -> None:
    pipeline.stage("a", lambda: None)


def _source_without_path(pipeline: Pipeline) -> None:
    pipeline.read(table("flights"))


def _one_folder_in_two_ways(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, outputs=table("x", "/out/x"))
    pipeline.stage("b", nothing, outputs=table("y", "file:///out/../out/x/"))


def _folder_in_the_root(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, outputs=table("x", "file:///"))
    pipeline.stage("b", nothing, outputs=table("y", "/out"))


def _brace_without_a_name(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, outputs=table("x", "/out/{}"))


def _retries_below_zero(pipeline: Pipeline) -> None:
    pipeline.stage("a", nothing, retries=-1)


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (_circle, "in a circle: 'a' waits for 'c' waits for 'b' waits for 'a'"),
        (_itself, "in a circle: 'a' waits for 'a'"),
        (_two_of_a_name, "Two stages have the name 'a'"),
        (
            _two_outputs_of_a_name,
            "Stage 'b': its output 'x' has a name that is taken, since stage 'a' leaves it",
        ),
        (
            _one_folder_in_another,
            "its output 'y' goes to /out/y, and 'x' to /out. Give each output a folder",
        ),
        (
            _unknown_input,
            "Stage 'a' reads 'x', which no stage leaves and no pipeline.read declares; there are: none",
        ),
        (_unknown_stage, "Stage 'a' comes after 'b', which is no stage; there are: 'a'"),
        (_unknown_parameter, "the path /out/{day} of 'x' names the parameter 'day'"),
        (_missing_argument, "its function takes the argument 'day', which is no input"),
        (_input_without_argument, "its function has no argument 'more'"),
        (_own_parameter_without_argument, "its function has no argument 'month'"),
        (_parameter_that_cannot_travel, "stage 'a': the parameter 'day' is <object object"),
        (_no_session, "takes no SparkSession"),
        (_source_without_path, "declares 'flights' without a path"),
        (_one_folder_in_two_ways, "its output 'y' goes to file:///out/../out/x/, and 'x' to /out/x. Give"),
        (_folder_in_the_root, "its output 'y' goes to /out, and 'x' to /. Give"),
        (_brace_without_a_name, "Stage 'a': the path /out/{} of 'x' has a brace that names no parameter"),
        (lambda pipeline: pipeline.stage("a", nothing, inputs=None), "Stage 'a': inputs are names, not None"),
        (lambda pipeline: pipeline.stage("a", nothing, after=3), "Stage 'a': after are names, not 3"),
        (lambda pipeline: pipeline.stage("a", nothing, parameters=["day"]), "parameters are a dict of names"),
        (lambda pipeline: pipeline.read("x"), "'x' is no data of a pipeline: declare a StageTable"),
        (
            lambda pipeline: pipeline.stage("a", nothing, outputs=table("x", "hdfs:/out")),
            "'x' has the path hdfs:/out: write hdfs://... for a place in a file system, or ./hdfs:/out",
        ),
        (_retries_below_zero, "retries are a number of 0 or more, not -1"),
        (lambda pipeline: None, "has no stages"),
    ],
)
def test_a_pipeline_that_cannot_run_is_refused_by_name(
    declare: Callable[[Pipeline], None], told: str
) -> None:
    pipeline = Pipeline("nightly")
    with pytest.raises(PipelineError) as raised:
        declare(pipeline)
        pipeline.get_job_graph()
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (lambda: StageTable("my table", "n int"), "'my table' is no name for data"),
        (lambda: StageTable("spark", "n int"), "not the word 'spark'"),
        (lambda: StageTable("x", "n number"), "table 'x': 'n number': expected a type"),
        (lambda: StageTable("x", "n int", format="xml"), "table 'x': no format 'xml'; there are: parquet"),  # type: ignore[arg-type]
        (lambda: StageTable("x", "n int, m int", partition_by=("o",)), "partition_by names 'o'"),
        (lambda: StageTable("x", "n int", partition_by=("n",)), "leaves no column for the files"),
        (
            lambda: StageTable("x", "n int", if_exists="append"),  # type: ignore[arg-type]
            "if_exists is IfExists.FAIL or IfExists.REPLACE, not 'append'",
        ),
        (lambda: StageFiles("x", if_exists=None), "data 'x': if_exists is IfExists.FAIL or"),  # type: ignore[arg-type]
        (lambda: StageFiles("x", Path("/out")), "data 'x': a path is a text"),  # type: ignore[arg-type]
        (lambda: StageTable("x", "n int", "/a\0b"), "data 'x': a path is a text without a null character"),
        (lambda: StageTable("x", None), "table 'x': its schema is a text"),  # type: ignore[arg-type]
        (lambda: StageTable("x", "n int", options=None), "table 'x': options are a dict of texts"),  # type: ignore[arg-type]
        (
            lambda: StageTable("x", "n int", options={"header": True}),  # type: ignore[dict-item]
            "table 'x': options are a dict of texts",
        ),
        (
            lambda: StageTable("x", "n int, m int", partition_by="n"),  # type: ignore[arg-type]
            "partition_by is a tuple of columns, as ('day',), not 'n'",
        ),
        (lambda: StageFiles("a/b"), "'a/b' is no name for data"),
    ],
)
def test_data_that_cannot_be_is_refused_where_it_is_declared(
    declare: Callable[[], object], told: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        declare()


def leave_and_read(of: dict[str, Any], by: dict[str, Any], path: str = "/out/{day}") -> Pipeline:
    pipeline = Pipeline("parameters", parameters={"day": "monday"})
    pipeline.stage("leaves", nothing, outputs=table("t", path), parameters=of)
    pipeline.stage("reads", nothing, inputs=["t"], parameters=by)
    return pipeline


def test_an_output_is_read_where_its_stage_has_left_it_whatever_the_parameters_of_the_reader() -> None:
    graph = leave_and_read({"day": "friday"}, {"day": "sunday"}).get_job_graph()
    leaves, reads = (stage_of(vertex) for vertex in graph.vertices)
    assert path_of(leaves.outputs[0], leaves) == "/out/friday"
    assert path_of(reads.inputs[0], reads) == "/out/friday"


def test_a_source_is_read_where_the_parameters_of_its_reader_say() -> None:
    pipeline = Pipeline("parameters")
    pipeline.read(table("t", "/in/{day}"))
    pipeline.stage("reads", nothing, inputs=["t"], parameters={"day": "sunday"})
    (reads,) = (stage_of(vertex) for vertex in pipeline.get_job_graph().vertices)
    assert path_of(reads.inputs[0], reads) == "/in/sunday"


def test_paths_of_outputs_are_compared_with_the_values_of_their_parameters() -> None:
    def two(first: str, second: str) -> Pipeline:
        pipeline = Pipeline("two", parameters={"a": "x", "b": "x"})
        pipeline.stage("1", nothing, outputs=table("s", "/out/{a}"), parameters={"a": first})
        pipeline.stage("2", nothing, outputs=table("t", "/out/{b}"), parameters={"b": second})
        return pipeline

    assert len(two("p", "q").get_job_graph().vertices) == 2
    with pytest.raises(PipelineError, match=re.escape("goes to /out/p, and 's' to /out/p")):
        two("p", "p").get_job_graph()
    same = Pipeline("same")
    same.stage("1", nothing, outputs=table("s", "/out/{a}"), parameters={"a": "p"})
    same.stage("2", nothing, outputs=table("t", "/out/{a}"), parameters={"a": "q"})
    assert len(same.get_job_graph().vertices) == 2


def test_a_run_of_a_schedule_has_its_own_time() -> None:
    pipeline = Pipeline(
        "daily",
        parameters={"due_date": "2013-12-01", "limit": 7},
        configuration=Configuration.from_dict({"pipeline.global-job-parameters": "owner:ann"}),
    )
    pipeline.read(table("s", "/in/{due_date}"))
    pipeline.stage("leaves", report_of_day, inputs=["s"], outputs=table("t", "/out/{limit}/{due_date}"))
    pipeline.stage("reads", nothing, inputs=["t"])
    graph = pipeline.get_job_graph()

    def told(graph: JobGraph) -> list[str]:
        leaves, reads = (stage_of(vertex) for vertex in graph.vertices)
        paths = [path_of(leaves.inputs[0], leaves), path_of(leaves.outputs[0], leaves)]
        return [*paths, path_of(reads.inputs[0], reads), leaves.parameters["due_date"]]

    assert told(graph) == ["/in/2013-12-01", "/out/7/2013-12-01", "/out/7/2013-12-01", "2013-12-01"]
    due = Schedule.of_cron("0 3 * * *").due_parameters(1_700_000_000_000)
    scheduled = decode_job_graph(encode_job_graph(with_due_time(graph, due)))
    assert told(scheduled) == ["/in/2023-11-14", "/out/7/2023-11-14", "/out/7/2023-11-14", "2023-11-14"]
    assert [stage_of(vertex).arguments for vertex in scheduled.vertices] == [
        ("due_date",),
        ("due_date", "limit"),
    ]
    assert "/out/7/2023-11-14" in str(scheduled.plan) and "2013-12-01" not in str(scheduled.plan)
    # A parameter that the program does not declare is none; global job parameters have it all the same.
    assert "due_time" not in stage_of(scheduled.vertices[0]).parameters
    parameters = Settings(scheduled.configuration, "the job").get(GLOBAL_JOB_PARAMETERS)
    assert parameters == {"owner": "ann", **due}


@pytest.mark.parametrize(
    "given",
    [
        {
            "pipeline.global-job-parameters.due_date": "by hand",
            "pipeline.global-job-parameters.owner": "a,b:c",
        },
        {"pipeline.global-job-parameters": "due_date:by hand,'owner:a,b:c'"},
    ],
)
def test_a_run_of_a_schedule_has_its_own_time_however_parameters_are_written(given: dict[str, str]) -> None:
    pipeline = Pipeline("daily", configuration=Configuration.from_dict(given))
    pipeline.stage("only", nothing)
    due = Schedule.of_cron("0 3 * * *").due_parameters(1_700_000_000_000)
    scheduled = with_due_time(pipeline.get_job_graph(), due)
    parameters = Settings(scheduled.configuration, "the job").get(GLOBAL_JOB_PARAMETERS)
    assert parameters == {"owner": "a,b:c", **due}


@pytest.mark.parametrize(("name", "value"), [("due_time", "now"), ("hour", "2013-12-01T07:00")])
def test_a_path_of_hdfs_has_no_colon(name: str, value: str) -> None:
    pipeline = Pipeline("hourly", parameters={name: value})
    pipeline.stage("leaves", nothing, outputs=table("t", f"hdfs://nn:8020/out/{{{name}}}"))
    with pytest.raises(
        PipelineError, match=rf"parameter '{name}', whose values have a colon: HDFS takes none"
    ):
        pipeline.get_job_graph()
    local = Pipeline("hourly", parameters={name: value})
    local.stage("leaves", nothing, outputs=table("t", f"/out/{{{name}}}"))
    local.get_job_graph()


def test_the_time_of_a_run_is_one_for_all_stages() -> None:
    pipeline = Pipeline("daily")
    pipeline.stage("only", nothing, parameters={"due_date": "2013-12-01"})
    with pytest.raises(
        PipelineError, match="'only' has a parameter 'due_date' of its own: a schedule sets it"
    ):
        pipeline.get_job_graph()


@pytest.mark.parametrize("value", ["", "..", "a/../../b", "/", "{day}", None, True, ["a"], {"a": 1}])
def test_a_parameter_that_would_lead_to_another_folder_is_refused(value: Any) -> None:
    with pytest.raises(PipelineError, match=r"names the parameter 'day', which is .*: a path takes"):
        leave_and_read({"day": value}, {}).get_job_graph()


def test_a_function_that_does_not_travel_is_told_by_its_stage() -> None:
    lock = threading.Lock()

    def locked(spark: Any) -> None:
        with lock:
            pass

    with pytest.raises(
        UnpicklableFunctionError,
        match=r"^Stage 'day': its function \(locked at test_pipeline_graph\.py:\d+\) cannot be sent to the SparkDriver "
        r"because of the captured variable 'lock' \(_thread\.lock\): .* Create such an object inside the function",
    ):
        Pipeline("nightly").stage("day", locked)
