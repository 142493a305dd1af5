"""Stages of pipelines in one SparkDriver: what they leave, side by side, and what a user reads when one fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from tests.format.golden_snapshots import savepoint
from tests.support.small_disk import small_disk
from tests.support.spark_driver import LIMIT, DriverUnderTest, Outcome
from yarrow.batch import IfExists, Pipeline, StageFiles, StageTable
from yarrow.batch.pipeline_graph import vertex_id_of
from yarrow.common.configuration import Configuration
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import FailureCause, OutputMove, StageEnd, StageSubmission
from yarrow.state_processor import SavepointReader

pytestmark = pytest.mark.spark


class PlayedPipeline:
    """A run of a pipeline whose stages a test begins itself."""

    def __init__(self, driver: DriverUnderTest, pipeline: Pipeline, finished: tuple[str, ...] = ()) -> None:
        self.driver = driver
        self.graph: JobGraph = pipeline.get_job_graph()
        self.run, self.ended = driver.begin_pipeline(self.graph, [vertex_id_of(name) for name in finished])

    def begin(self, stage: str, attempt: int = 0, **fields: Any) -> Future[StageEnd]:
        vertex_id = vertex_id_of(stage)
        submission = StageSubmission(
            job_id=self.graph.job_id, run=self.run, vertex_id=vertex_id, attempt=attempt, **fields
        )
        return self.driver.begin_stage(submission)

    def all(self) -> None:
        """Runs all stages, one after the other."""
        for vertex in self.graph.vertices:
            end = self.begin(vertex.name).result(LIMIT)
            assert end.cause is None, end.cause.stacktrace

    def end(self) -> Outcome:
        self.driver.cancel(self.graph, self.run)
        return self.ended.result(LIMIT)


def pipeline_in(folder: Path, **parameters: Any) -> Pipeline:
    """A pipeline whose temporary outputs lie below a folder."""
    temporary = {"execution.batch.pipeline-directory": str(folder / "temporary")}
    return Pipeline("test", parameters=parameters, configuration=Configuration.from_dict(temporary))


def rows(folder: Path) -> list[tuple[Any, ...]]:
    table = pq.read_table(folder)
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def hidden(folder: Path) -> list[str]:
    """What is left of attempts."""
    return sorted(str(path) for path in folder.rglob(".*") if ".yarrow-" in path.name)


def twice(value: int) -> int:
    return 2 * value


def numbers(spark: Any, *, count: int) -> Any:
    spark.range(3).createOrReplaceTempView("shared_name")
    return spark.range(count).select((F.col("id") % 3).alias("k"), "id")


def sums(spark: Any, numbers: Any, folder: str, scale: int = 1) -> Any:
    assert not spark.catalog.tableExists("shared_name"), "sessions share nothing"
    Path(folder).mkdir()
    Path(folder, "note.txt").write_text(str(numbers.count()))
    double = F.udf(twice, "bigint")
    doubled = numbers.select("k", double("id").alias("id"))
    return {
        "sums": doubled.groupBy("k").agg((F.sum("id") * scale).alias("total"), F.lit("x").alias("text")),
        "none": numbers.limit(0).select("id"),
    }


def report(spark: Any, sums: Any, folder: str, old: Any) -> Any:
    note = int(Path(folder, "note.txt").read_text())
    return sums.join(old, "k").select("total", F.lit(note).cast("int").alias("note"), "k", "old")


def test_stages_leave_what_they_declare(driver: DriverUnderTest, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "part.csv").write_text("k,old\n1,one\n2,two\n")
    pipeline = pipeline_in(tmp_path, count=10, day="monday")
    pipeline.read(
        StageTable("old", "k bigint, old string", str(tmp_path / "old"), "csv", {"header": "true"})  # type: ignore[arg-type]
    )
    pipeline.stage("numbers", numbers, outputs=StageTable("numbers", "K long, id bigint"))
    pipeline.stage(
        "sums",
        sums,
        inputs=["numbers"],
        outputs=[
            StageTable("sums", "total bigint, k bigint, text string", partition_by=("k",)),
            StageTable("none", "id bigint"),
            StageFiles("folder"),
        ],
        parameters={"scale": 10},
    )
    pipeline.stage(
        "report",
        report,
        inputs=["sums", "folder", "old"],
        outputs=StageTable("report", "k bigint, total bigint, note int, old string", str(tmp_path / "{day}")),
    )
    played = PlayedPipeline(driver, pipeline)
    played.all()
    assert rows(tmp_path / "monday") == [(1, 240, 10, "one"), (2, 300, 10, "two")]
    # Another attempt of the last stage does not touch what is there.
    again = played.begin("report", 1).result(LIMIT)
    assert again.cause is not None
    assert f"the path {tmp_path / 'monday'} exists" in again.cause.message
    outcome = played.end()
    assert outcome.finished is not None
    assert hidden(tmp_path) == []


def test_stages_run_side_by_side(driver: DriverUnderTest, tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)

    def meeting(own: str, other: str) -> Callable[..., Any]:
        def function(spark: Any, *, folder: str) -> Any:
            Path(folder, own).touch()
            while not Path(folder, other).exists():
                threading.Event().wait(0.01)
            return spark.range(1)

        return function

    for own, other in (("left", "right"), ("right", "left")):
        pipeline.stage(
            own,
            meeting(f"{own}.begun", f"{other}.begun"),
            outputs=StageTable(own, "id bigint", str(tmp_path / own)),
            parameters={"folder": str(tmp_path)},
        )
    played = PlayedPipeline(driver, pipeline)
    ends = [played.begin(name) for name in ("left", "right")]
    assert [end.result(LIMIT).cause for end in ends] == [None, None]
    played.end()


def raises(spark: Any) -> Any:
    raise ValueError("no such day")


def raises_in_a_task(spark: Any) -> Any:
    def parse(value: int) -> int:
        return int(f"x{value}")

    return spark.range(3).select(F.udf(parse, "bigint")("id").alias("id"))


def names_no_column(spark: Any) -> Any:
    return spark.range(3).select("ident")


def divides_by_zero(spark: Any) -> Any:
    return spark.range(3).selectExpr("id div (id - id) as id")


def exits(spark: Any) -> Any:
    raise SystemExit(3)


def dies_in_a_task(spark: Any) -> Any:
    return spark.range(1).select(F.udf(lambda n: os._exit(3), "bigint")("id").alias("id"))


def renames_in_pandas(spark: Any) -> Any:
    return spark.range(1).mapInPandas(
        lambda frames: (each.rename(columns={"id": "n"}) for each in frames), "id bigint"
    )


def gives_arrow_of_another_type(spark: Any) -> Any:
    batch = pa.RecordBatch.from_pydict({"id": ["x"]})
    return spark.range(1).mapInArrow(lambda batches: (batch for _ in batches), "id bigint")


def reads_what_is_no_parquet(spark: Any) -> Any:
    return spark.read.schema("id bigint").parquet(f"file://{__file__}")


@pytest.mark.parametrize(
    ("function", "first", "told"),
    [
        (reads_what_is_no_parquet, "yarrow.", "test_pipelines.py is not a Parquet file"),
        (lambda spark: spark.stop(), "yarrow.", "spark.stop() would end Spark for all stages"),
        (lambda spark: spark.sparkContext.stop(), "yarrow.", "take it out. The session ends with the job"),
        (
            dies_in_a_task,
            "yarrow.",
            "a Python process of Spark has died while it ran a function of the stage",
        ),
        (renames_in_pandas, "PySparkRuntimeError: ", "Missing: id. Unexpected: n."),
        (gives_arrow_of_another_type, "yarrow.", "gave a column of another type than its schema"),
        (raises, "Traceback (most recent call last):", "in raises\n"),
        (raises, "Traceback (most recent call last):", "ValueError: no such day\n  in stage 'broken'"),
        (raises_in_a_task, "Traceback (most recent call last):", "in parse\n"),
        (raises_in_a_task, "Traceback (most recent call last):", "ValueError: invalid literal for int"),
        (names_no_column, "Traceback (most recent call last):", "in names_no_column\n"),
        (names_no_column, "Traceback (most recent call last):", "`ident` cannot be resolved"),
        (divides_by_zero, "yarrow.", "its output 'out' was not written to"),
        (divides_by_zero, "yarrow.", "Division by zero"),
        (exits, "Traceback (most recent call last):", "SystemExit: 3"),
        (lambda spark: None, "yarrow.", "its function returned None for 'out': return a DataFrame"),
        (lambda spark: 3, "yarrow.", "returned an object of builtins.int for 'out'"),
        (lambda spark: {"other": 1}, "yarrow.", "returned no DataFrame for 'out': it declares 'out'"),
        (
            lambda spark: {"out": spark.range(1), "more": 1},
            "yarrow.",
            "returned 'more', which the stage does not declare",
        ),
        (
            lambda spark: spark.range(1).toDF("ident"),
            "yarrow.",
            "lacks the column id bigint. It has: ident bigint.",
        ),
        (
            lambda spark: spark.range(1).selectExpr("cast(id as int) id"),
            "yarrow.",
            "whose column id is int, and not bigint as declared",
        ),
        (
            lambda spark: spark.range(1).selectExpr("id", "1 as more"),
            "yarrow.",
            "with the column more int, which is not declared",
        ),
        (
            lambda spark: spark.range(1).selectExpr("id", "id as ID"),
            "yarrow.",
            "that has a column twice",
        ),
    ],
)
def test_a_failed_stage_tells_the_users_own_error_first(
    driver: DriverUnderTest, tmp_path: Path, function: Any, first: str, told: str
) -> None:
    pipeline = pipeline_in(tmp_path)
    pipeline.stage("broken", function, outputs=StageTable("out", "id bigint", str(tmp_path / "out")))
    played = PlayedPipeline(driver, pipeline)
    cause = played.begin("broken").result(LIMIT).cause
    played.end()
    assert cause is not None
    assert cause.operator_name == "broken"
    assert cause.stacktrace.startswith(first), cause.stacktrace
    assert told in cause.stacktrace
    for word in ("py4j", "java.", "org.apache", "site-packages/pyspark", "JVM"):
        assert word not in cause.stacktrace
    assert not (tmp_path / "out").exists()
    assert hidden(tmp_path) == []


def only(spark: Any, **inputs: Any) -> Any:
    return next(iter(inputs.values())).select("n")


def test_a_column_that_no_file_of_an_input_has_is_named(driver: DriverUnderTest, tmp_path: Path) -> None:
    files = tmp_path / "file[s] *"
    files.mkdir()
    pq.write_table(pa.table({"n": [1]}), files / "1.parquet")
    pq.write_table(pa.table({"n": [2], "later": ["x"]}), files / "2.parquet")
    differing = tmp_path / "differing"
    differing.mkdir()
    pq.write_table(pa.table({"n": [1], "unread": [1]}), differing / "1.parquet")
    pq.write_table(pa.table({"n": [2], "unread": ["x"], "later": ["x"]}), differing / "2.parquet")
    pipeline = pipeline_in(tmp_path)
    for name, schema in (("good", "N bigint, later string"), ("wrong", "n bigint, latter string")):
        pipeline.read(StageTable(name, schema, str(files)))
        output = StageTable(f"of_{name}", "n bigint", str(tmp_path / name))
        pipeline.stage(name, only, inputs=[name], outputs=output)
    pipeline.read(StageTable("differing", "n bigint, later string", str(differing)))
    output = StageTable("of_differing", "n bigint", str(tmp_path / "of_differing"))
    pipeline.stage("differing", only, inputs=["differing"], outputs=output)
    played = PlayedPipeline(driver, pipeline)
    assert played.begin("good").result(LIMIT).cause is None
    cause = played.begin("differing").result(LIMIT).cause
    assert cause is None, "Spark reads files of which nobody reads the column that has several types"
    cause = played.begin("wrong").result(LIMIT).cause
    played.end()
    assert cause is not None
    told = f"Stage 'wrong': its input 'wrong' has no column latter string. The files at {files} have: n bigint, later"
    assert told in cause.message
    assert rows(tmp_path / "good") == [(1,), (2,)] and not (tmp_path / "wrong").exists()


def raises_beside_a_late_task(spark: Any) -> Any:
    """The first of two tasks raises while the second one computes the row with which it begins a file."""
    inner = "aggregate(sequence(1L, 4000L * id), 0L, (a, x) -> a + x)"
    long = f"aggregate(sequence(1L, 4000L * id), 0L, (b, y) -> b + {inner})"
    return spark.range(0, 2, 1, 2).select(F.expr(f"if(id = 0, raise_error('at once'), {long})").alias("id"))


def both_meet(spark: Any, *, place: str) -> Any:
    """Two tasks that wait for each other: nothing else runs beside them."""

    def meets(batches: Any) -> Any:
        for batch in batches:
            for own in batch.column("id").to_pylist():
                Path(place, f"met-{own}").touch()
                while not Path(place, f"met-{1 - own}").exists():
                    threading.Event().wait(0.01)
            yield batch

    return spark.range(0, 2, 1, 2).mapInArrow(meets, "id bigint")


def test_a_late_task_of_a_failed_stage_leaves_nothing(driver: DriverUnderTest, tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, place=str(tmp_path))
    pipeline.stage(
        "late", raises_beside_a_late_task, outputs=StageTable("late", "id bigint", str(tmp_path / "late"))
    )
    pipeline.stage("behind", both_meet, outputs=StageTable("met", "id bigint", str(tmp_path / "met")))
    played = PlayedPipeline(driver, pipeline)
    cause = played.begin("late").result(LIMIT).cause
    assert cause is not None and "at once" in cause.message
    # Both places are free for these tasks when the late one has ended.
    assert played.begin("behind").result(LIMIT).cause is None
    assert hidden(tmp_path) == []
    played.end()


def test_folders_that_stay_empty_or_are_files_are_told(driver: DriverUnderTest, tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    pipeline.stage("empty", lambda spark, model: None, outputs=StageFiles("model", str(tmp_path / "model")))
    pipeline.stage(
        "file",
        lambda spark, text: Path(text).touch(),
        outputs=StageFiles("text", str(tmp_path / "text")),
    )
    played = PlayedPipeline(driver, pipeline)
    causes = {name: played.begin(name).result(LIMIT).cause for name in ("empty", "file")}
    played.end()
    told = {name: cause.message for name, cause in causes.items() if cause is not None}
    path = "It gets a path as the argument {0!r}, makes a folder there, and writes files into it"
    assert told == {
        "empty": "Stage 'empty': its function has put nothing into the folder of 'model'. "
        + path.format("model"),
        "file": "Stage 'file': its function has written a plain file in place of the folder of 'text'. "
        + path.format("text"),
    }


def refused(driver: DriverUnderTest, pipeline: Pipeline) -> FailureCause:
    """Why a run of a pipeline does not begin."""
    outcome = PlayedPipeline(driver, pipeline).ended.result(LIMIT)
    assert outcome.failure is not None
    assert outcome.failure.is_final
    return outcome.failure


def test_paths_are_looked_at_before_any_stage_runs(driver: DriverUnderTest, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    pipeline = pipeline_in(tmp_path)
    pipeline.stage("first", raises)
    pipeline.stage(
        "last",
        lambda spark, out: None,
        outputs=StageFiles("out", str(tmp_path / "out")),
        after=["first"],
    )
    assert (
        f"Stage 'last': its output 'out': the path {tmp_path}/out exists" in refused(driver, pipeline).message
    )
    pipeline = pipeline_in(tmp_path)
    pipeline.read(StageFiles("in_", str(tmp_path / "nowhere")))
    pipeline.stage("reads", lambda spark, in_: None, inputs=["in_"])
    assert f"there is nothing at {tmp_path}/nowhere" in refused(driver, pipeline).message


def test_a_replaced_output_is_there_until_the_new_one_is_complete(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old.parquet").touch()

    def stage(spark: Any, *, path: str) -> Any:
        assert (Path(path) / "old.parquet").exists()
        return spark.range(2)

    pipeline = pipeline_in(tmp_path, path=str(out))
    pipeline.stage(
        "again", stage, outputs=StageTable("out", "id bigint", str(out), if_exists=IfExists.REPLACE)
    )
    played = PlayedPipeline(driver, pipeline)
    played.all()
    played.end()
    assert rows(out) == [(0,), (1,)]
    assert hidden(tmp_path) == []


def test_the_next_driver_moves_what_is_stored(driver: DriverUnderTest, tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    pipeline.stage(
        "two",
        lambda spark, x, y: None,
        outputs=[StageFiles(name, str(tmp_path / name)) for name in ("x", "y")],
    )
    played = PlayedPipeline(driver, pipeline, finished=("two",))
    (tmp_path / ".y.written").mkdir()
    (tmp_path / "x").mkdir()
    moves = tuple(
        OutputMove(source=str(tmp_path / f".{name}.written"), target=str(tmp_path / name))
        for name in ("x", "y")
    )
    end = played.begin("two", moves=moves).result(LIMIT)
    assert end.cause is None
    assert (tmp_path / "y").is_dir()
    assert not (tmp_path / ".y.written").exists()
    gone = OutputMove(source=str(tmp_path / "a"), target=str(tmp_path / "b"))
    end = played.begin("two", 1, moves=(gone,)).result(LIMIT)
    assert end.lost_inputs == (vertex_id_of("two"),)
    played.end()


def test_temporary_outputs_that_are_gone_are_told_with_their_stage(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    pipeline = pipeline_in(tmp_path)
    pipeline.stage("numbers", lambda spark: spark.range(1), outputs=StageTable("n", "id bigint"))
    pipeline.stage("reads", lambda spark, n: None, inputs=["n"])
    played = PlayedPipeline(driver, pipeline, finished=("numbers",))
    end = played.begin("reads").result(LIMIT)
    assert end.lost_inputs == (vertex_id_of("numbers"),)
    assert end.cause is not None
    assert "execution.batch.pipeline-directory" in end.cause.message
    assert played.begin("numbers").result(LIMIT).cause is None
    assert played.begin("reads", 1).result(LIMIT).cause is None
    played.end()


def large(spark: Any) -> Any:
    return spark.range(2_000_000).selectExpr("id", "uuid() as text")


@pytest.mark.parametrize("is_temporary", [False, True], ids=["named", "temporary"])
def test_a_full_disk_is_told_with_the_output(
    driver: DriverUnderTest, tmp_path: Path, is_temporary: bool
) -> None:
    with small_disk(tmp_path / "disk", 2) as disk:
        pipeline = pipeline_in(disk if is_temporary else tmp_path)
        path = "" if is_temporary else str(disk / "out")
        pipeline.stage("large", large, outputs=StageTable("out", "id bigint, text string", path))
        played = PlayedPipeline(driver, pipeline)
        cause = played.begin("large").result(LIMIT).cause
        played.end()
        folder = f"{disk}/temporary/yarrow-pipeline-{played.graph.job_id}" if is_temporary else str(disk)
        assert cause is not None
        assert cause.message.startswith(
            f"Stage 'large': its output 'out' was not written to {folder}/out: the disk of {folder} is full (mounted on"
            f" {disk}, 2 MB, of which"
        )
        assert cause.message.endswith(
            " free the disk, or "
            + (
                "name a folder on a larger one (execution.batch.pipeline-directory)"
                if is_temporary
                else "name another path for the output"
            )
        )
        assert [path for path in disk.rglob("*") if path.is_file()] == []


def test_a_function_that_fills_the_disk_of_its_output_is_told_with_the_folder(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    def fill(spark: Any, out: str) -> None:
        Path(out).mkdir()
        Path(out, "large").write_bytes(bytes(3 << 20))

    with small_disk(tmp_path / "disk", 2) as disk:
        pipeline = pipeline_in(tmp_path)
        pipeline.stage("fills", fill, outputs=StageFiles("out", str(disk / "out")))
        played = PlayedPipeline(driver, pipeline)
        cause = played.begin("fills").result(LIMIT).cause
        played.end()
        assert cause is not None
        assert "in fill\n" in cause.stacktrace
        assert f"\noutput 'out': the disk of {disk} is full (mounted on {disk}, 2 MB" in cause.stacktrace
        assert "free the disk, or name another path for the output\n  in stage 'fills'" in cause.stacktrace
        assert list(disk.iterdir()) == []


def test_a_cancelled_stage_leaves_nothing(driver: DriverUnderTest, tmp_path: Path) -> None:
    def endless(spark: Any, *, begun: str) -> Any:
        def stay(value: int) -> int:
            Path(begun).touch()
            threading.Event().wait()
            return value

        return spark.range(2).select(F.udf(stay, "bigint")("id").alias("id"))

    pipeline = pipeline_in(tmp_path, begun=str(tmp_path / "begun"))
    temporary = tmp_path / "temporary"
    pipeline.get_configuration().set_string("execution.batch.pipeline-directory", temporary.as_uri())
    pipeline.stage("endless", endless, outputs=StageTable("out", "id bigint", str(tmp_path / "out")))
    played = PlayedPipeline(driver, pipeline)
    played.begin("endless")
    while not (tmp_path / "begun").exists():
        threading.Event().wait(0.01)
    outcome = played.end()
    assert outcome.cancelled
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "temporary"]
    assert list(temporary.iterdir()) == []


def test_a_stage_reads_a_savepoint_as_dataframes(driver: DriverUnderTest, tmp_path: Path) -> None:
    path = savepoint(tmp_path)

    def states(spark: Any, saved: str) -> Any:
        from yarrow.state_processor.spark import SavepointDataFrames

        counts = SavepointDataFrames.read(spark, saved, trust_pickle=True).read_keyed_state("kinds", "count")
        return counts.select("key", "value")

    pipeline = pipeline_in(tmp_path)
    pipeline.read(StageFiles("saved", str(path)))
    pipeline.stage(
        "states",
        states,
        inputs=["saved"],
        outputs=StageTable("out", "key string, value bigint", str(tmp_path / "out")),
    )
    played = PlayedPipeline(driver, pipeline)
    played.all()
    played.end()
    with SavepointReader.read(path, trust_pickle=True) as reader:
        expected = reader.read_keyed_state("kinds", "count").select(["key", "value"]).to_pylist()
    assert rows(tmp_path / "out") == sorted((row["key"], row["value"]) for row in expected)
