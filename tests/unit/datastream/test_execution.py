"""From the environment to an executor: what is handed over, what Ctrl-C does, how results come back."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common.completable_future import CompletableFuture
from yarrow.common.configuration import Configuration
from yarrow.common.job_client import JobClient
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.job_id import JobID
from yarrow.common.job_status import JobStatus
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.program.job_waiting import wait_for_job
from yarrow.runtime.common.errors import (
    InvalidProgramError,
    JobCancelledError,
    JobExecutionError,
    UnsupportedFeatureError,
)
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.executor import (
    ENTRY_POINT_GROUP,
    LocalFile,
    ProgramAborted,
    collect_job_graphs,
    configuration_in_place,
    executor_for,
    executor_in_place,
    plan_only,
)
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.errors import RpcUnavailableError


class RecordingExecutor:
    """Takes jobs and runs none; gives each of them the client it was made with."""

    def __init__(self, client: JobClient) -> None:
        self.client = client
        self.taken: list[tuple[JobGraph, Mapping[str, str], Sequence[LocalFile]]] = []

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        self.taken.append((job_graph, configuration, files))
        return self.client


class FakeClient(JobClient):
    """A job that ends when it is cancelled, or as it was told to."""

    def __init__(self) -> None:
        self.cancelled = False
        self.end: CompletableFuture[JobExecutionResult] = CompletableFuture()

    def get_job_id(self) -> JobID:
        return JobID("0" * 31 + "1")

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(JobStatus.RUNNING)

    def cancel(self) -> CompletableFuture[None]:
        self.cancelled = True
        self.end.complete_exceptionally(JobCancelledError("cancelled"))
        return CompletableFuture.completed(None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        return CompletableFuture.completed("")

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return CompletableFuture.completed("")

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        return CompletableFuture.completed({})

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return self.end

    def finish(self) -> None:
        self.end.complete(JobExecutionResult(self.get_job_id(), 5))


class FakeCollectingClient(FakeClient):
    """A job whose results are these batches; it ends behind the last."""

    def __init__(self, batches: Sequence[Sequence[Any]], error: Exception | None = None) -> None:
        super().__init__()
        self.batches = list(batches)
        self.error = error
        self.asked: list[tuple[str, int]] = []

    def fetch_collected(self, collect_id: str, max_rows: int) -> Sequence[Any] | None:
        self.asked.append((collect_id, max_rows))
        if self.batches:
            return self.batches.pop(0)
        if self.error is None:
            self.finish()
        else:
            self.end.complete_exceptionally(self.error)
        return None


@contextmanager
def executing(client: JobClient) -> Iterator[RecordingExecutor]:
    executor = RecordingExecutor(client)
    with executor_in_place(executor):
        yield executor


def test_execute_hands_over_graph_configuration_and_files(tmp_path: Path) -> None:
    module = tmp_path / "parsing.py"
    module.touch()
    client = FakeClient()
    client.finish()
    env = environment(settings={"pipeline.object-reuse": "true"})
    env.add_python_file(str(module))
    env.register_cached_file(str(module), "model", executable=True)
    env.from_sequence(1, 9).print()
    with executing(client) as executor:
        result = env.execute("numbers")
    ((graph, configuration, files),) = executor.taken
    assert graph.name == "numbers"
    assert graph.configuration["pipeline.object-reuse"] == "true" == configuration["pipeline.object-reuse"]
    assert [(file.name, file.kind, file.path, file.executable) for file in files] == [
        ("parsing.py", "python_file", str(module), False),
        ("model", "cached_file", str(module), True),
    ]
    assert result.get_net_runtime() == 5


def test_calls_ship_archives_and_requirements_and_choose_the_interpreter(tmp_path: Path) -> None:
    for name in ("env.zip", "models.tar.gz", "old.txt", "new.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "wheels").mkdir()
    env = environment()
    env.add_python_archive(str(tmp_path / "env.zip"))
    env.add_python_archive(str(tmp_path / "models.tar.gz"), "models")
    env.set_python_requirements(str(tmp_path / "old.txt"))
    env.set_python_requirements(str(tmp_path / "new.txt"), str(tmp_path / "wheels"))
    env.set_python_executable("env.zip/bin/python")
    env.from_sequence(1, 9).print()
    client = FakeClient()
    client.finish()
    with executing(client) as executor:
        env.execute()
    ((_, configuration, files),) = executor.taken
    assert [(file.kind, file.name, file.target) for file in files] == [
        ("archive", "env.zip", None),
        ("archive", "models.tar.gz", "models"),
        ("requirements", "new.txt", None),
        ("requirements_cache", "wheels", None),
    ]
    assert configuration["python.executable"] == "env.zip/bin/python"
    with pytest.raises(InvalidProgramError, match=r"gone\.zip.*there is no such file"):
        env.add_python_archive(str(tmp_path / "gone.zip"))


def test_files_of_the_configuration_are_shipped_too(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / "env.zip").touch()
    settings = {"python.files": str(tmp_path / "a.py"), "python.archives": f"{tmp_path / 'env.zip'}#venv"}
    env = environment(settings=settings)
    env.from_sequence(1, 9).print()
    client = FakeClient()
    with executing(client) as executor:
        env.execute_async()
    assert [(file.kind, file.name, file.target) for file in executor.taken[0][2]] == [
        ("python_file", "a.py", None),
        ("archive", "env.zip", "venv"),
    ]


def test_the_next_job_begins_empty_and_may_read_what_was_there() -> None:
    env = environment()
    numbers = env.from_sequence(1, 9).map(lambda x: x)
    numbers.print()
    with executing(FakeClient()) as executor:
        env.execute_async("first")
        with pytest.raises(InvalidProgramError, match="defines no operators"):
            env.execute_async("nothing")
        numbers.filter(bool).print()
        env.execute_async("second")
    names = [[vertex.name for vertex in graph.vertices] for graph, _, _ in executor.taken]
    assert names == [
        ["Source: Sequence Source -> Map -> Sink: Print to Std. Out"],
        ["Source: Sequence Source -> Map -> Filter -> Sink: Print to Std. Out"],
    ]
    assert executor.taken[0][0].job_id != executor.taken[1][0].job_id


def test_names_of_jobs() -> None:
    env = environment()
    env.from_sequence(1, 9).print()
    assert env.get_job_graph(clear_transformations=False).name == "Flink Streaming Job"
    env.get_configuration().set_string("pipeline.name", "configured")
    assert env.get_job_graph(clear_transformations=False).name == "configured"
    assert env.get_job_graph("given").name == "given"


def test_plan_only_ends_the_program_with_its_graph() -> None:
    env = environment()
    env.from_sequence(1, 9).print()
    with pytest.raises(ProgramAborted) as raised, plan_only():
        try:
            env.execute("planned")
        except Exception:
            pytest.fail("a program that catches every Exception must end all the same")
    assert raised.value.job_graph.name == "planned"
    assert raised.value.job_graph.plan["nodes"][0]["description"].startswith("Source: Sequence Source")


def test_collecting_graphs_lets_the_program_run_on() -> None:
    delivered: list[str] = []
    with collect_job_graphs(lambda graph, files: delivered.append(graph.name)):
        for name in ("first", "second"):
            env = environment()
            env.from_sequence(1, 9).print()
            result = env.execute(name)
            assert result.get_net_runtime() == -1
    assert delivered == ["first", "second"]


def test_a_detached_job_cannot_be_cancelled_by_its_program() -> None:
    with collect_job_graphs(lambda graph, files: None):
        env = environment()
        env.from_sequence(1, 9).print()
        client = env.execute_async()
    with pytest.raises(UnsupportedFeatureError, match="was submitted detached"):
        client.cancel().result()


def test_an_unknown_target_names_those_there_are() -> None:
    with pytest.raises(
        InvalidProgramError, match=r"'moon', for which no executor.* there are: local, remote"
    ):
        executor_for("moon")


@pytest.mark.parametrize("target", ["local", "remote", "yarn-session", "yarn-per-job", "yarn-application"])
def test_each_target_of_ours_has_an_executor(target: str) -> None:
    assert callable(executor_for(target).execute)


def test_a_target_may_be_that_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "moonflights-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: moonflights\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        f"[{ENTRY_POINT_GROUP}]\n"
        "moon = moonflights_executor:Rocket.Executor [fuel]\n"
        "mars = moonflights_executor:Missing\n"
        "local = moonflights_executor:Rocket.Executor\n"
    )
    (tmp_path / "moonflights_executor.py").write_text("class Rocket:\n    class Executor: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert type(executor_for("moon")).__qualname__ == "Rocket.Executor"
    assert type(executor_for("local")).__name__ == "EmbeddedExecutor"
    with pytest.raises(
        InvalidProgramError, match=r"'mars', .* of the package moonflights cannot be imported"
    ):
        executor_for("mars")
    with pytest.raises(InvalidProgramError, match=r"'sun', .* there are: local, mars, moon, remote"):
        executor_for("sun")


def test_the_command_lines_settings_come_before_nothing_and_after_the_programs() -> None:
    with configuration_in_place({"parallelism.default": "7", "pipeline.name": "from the command line"}):
        assert StreamExecutionEnvironment.get_execution_environment().get_parallelism() == 7
        own = Configuration.from_dict({"parallelism.default": "3"})
        env = StreamExecutionEnvironment.get_execution_environment(own)
    assert env.get_parallelism() == 3
    env.from_sequence(1, 9).print()
    assert env.get_job_graph().name == "from the command line"


class InterruptedOnce(CompletableFuture[JobExecutionResult]):
    """Ctrl-C while the first caller waits."""

    interrupted = False

    def result(self, timeout: float | None = None) -> JobExecutionResult:
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return super().result(timeout)


def test_ctrl_c_cancels_waits_and_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    client = FakeClient()
    client.end = InterruptedOnce()
    with pytest.raises(KeyboardInterrupt):
        wait_for_job(client)
    assert client.cancelled
    assert client.end.done()
    assert capsys.readouterr().err == f"Job {client.get_job_id()} was cancelled by Ctrl-C.\n"


def test_the_jobs_error_is_raised_as_it_is() -> None:
    client = FakeClient()
    text = 'Traceback (most recent call last):\n  File "job.py", line 3, in parse\nValueError: no number'
    client.end.complete_exceptionally(JobExecutionError(text))
    env = environment()
    env.from_sequence(1, 9).print()
    with executing(client), pytest.raises(JobExecutionError) as raised:
        env.execute()
    assert str(raised.value) == text


def test_collected_records_come_in_order_and_end_with_the_job() -> None:
    client = FakeCollectingClient([[1, 2], [], [3]])
    env = environment()
    with executing(client) as executor, env.from_sequence(1, 3).execute_and_collect("collect") as results:
        assert list(results) == [1, 2, 3]
    assert not client.cancelled
    spec = executor.taken[0][0].vertices[-1].operators[-1].spec
    assert isinstance(spec, CollectOperator)
    assert client.asked[0][0] == spec.collect_id
    assert executor.taken[0][0].vertices[-1].parallelism == 1


def test_leaving_the_block_cancels() -> None:
    client = FakeCollectingClient([[1, 2, 3]])
    with executing(client), environment().from_sequence(1, 9).execute_and_collect() as results:
        assert next(results) == 1
    assert client.cancelled
    assert list(results) == []


def test_a_limit_ends_and_cancels() -> None:
    client = FakeCollectingClient([[1, 2], [3, 4]])
    with executing(client):
        results = environment().from_sequence(1, 9).execute_and_collect(limit=3)
    assert list(results) == [1, 2, 3]
    assert client.cancelled
    assert [rows for _, rows in client.asked] == [3, 1]


def test_a_failed_job_raises_while_results_are_read() -> None:
    client = FakeCollectingClient([[1]], JobExecutionError("ValueError: no number"))
    with executing(client):
        results = environment().from_sequence(1, 9).execute_and_collect()
    assert next(results) == 1
    with pytest.raises(JobExecutionError, match="no number"):
        next(results)


def test_collecting_from_a_cluster_that_hands_nothing_back() -> None:
    client = FakeClient()
    with executing(client), pytest.raises(UnsupportedFeatureError, match="which FakeClient does not"):
        environment().from_sequence(1, 9).execute_and_collect()
    assert client.cancelled, "a job whose results nobody can read is not left running"


class UnreachableExecutor:
    """A cluster that does not answer, found out a few calls deep."""

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        try:
            return self._connect()
        except OSError as error:
            raise RpcUnavailableError("the cluster at host:1 does not answer: is it up?") from error

    def _connect(self) -> JobClient:
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("call", ["execute", "execute_async", "execute_and_collect"])
def test_an_error_of_submission_shows_the_users_frames_and_a_sentence(call: str) -> None:
    env = environment()
    numbers = env.from_collection([1])
    if call != "execute_and_collect":
        numbers.print()
    executing = numbers.execute_and_collect if call == "execute_and_collect" else getattr(env, call)
    with executor_in_place(UnreachableExecutor()), pytest.raises(RpcUnavailableError) as found:
        executing()
    ours = [frame for frame in traceback.extract_tb(found.value.__traceback__) if frame.filename != __file__]
    assert [frame.name for frame in ours] in (
        ["execute"],
        ["execute_async"],
        ["execute_and_collect", "execute_async"],
    )
    shown = "".join(traceback.format_exception(found.value))
    assert "Connection refused" not in shown and shown.endswith("does not answer: is it up?\n")
