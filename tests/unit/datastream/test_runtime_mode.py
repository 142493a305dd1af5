"""How a program runs, by execution.runtime-mode and by whether its sources end."""

from __future__ import annotations

import logging

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.runtime.config import validation
from yarrow.runtime.config.validation import OnceLog
from yarrow.runtime.graph.batch.batch_rules import BatchRefusedError
from yarrow.runtime.graph.job_graph import decode_job_graph, encode_job_graph
from yarrow.runtime.graph.states import JobType

M = RuntimeExecutionMode


def bounded(mode: RuntimeExecutionMode, settings: dict[str, str] | None = None) -> StreamExecutionEnvironment:
    env = environment(settings=settings)
    env.set_runtime_mode(mode)
    env.from_sequence(1, 9).map(str).print()
    return env


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(M.STREAMING, JobType.STREAMING), (M.BATCH, JobType.BATCH), (M.AUTOMATIC, JobType.BATCH)],
)
def test_a_program_whose_sources_end(mode: RuntimeExecutionMode, expected: JobType) -> None:
    graph = bounded(mode).get_job_graph()
    assert graph.job_type is expected
    assert decode_job_graph(encode_job_graph(graph)).job_type is expected


def test_the_mode_may_come_from_the_configuration() -> None:
    env = environment(settings={"execution.runtime-mode": "BATCH"})
    env.from_sequence(1, 9).print()
    assert env.get_job_graph().job_type is JobType.BATCH


def test_a_source_without_an_end_runs_as_a_stream_or_is_refused_by_name() -> None:
    def job(mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        env = environment()
        env.set_runtime_mode(mode)
        env.from_sequence(1, 9).print()
        env.socket_text_stream("localhost", 9999).name("lines").print()
        return env

    assert job(M.AUTOMATIC).get_job_graph().job_type is JobType.STREAMING
    with pytest.raises(BatchRefusedError, match=r"refuses operator '.*': it is a source that does not end"):
        job(M.BATCH).get_job_graph()


def test_checkpoints_are_accepted_and_the_program_hears_that_they_have_no_effect(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mode, times in ((M.STREAMING, 0), (M.BATCH, 1), (M.AUTOMATIC, 1)):
        monkeypatch.setattr(validation, "_process_log", OnceLog())
        env = bounded(mode, {"execution.state-recovery.path": "/savepoints/one"})
        env.enable_checkpointing(1000)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            env.get_job_graph()
        assert caplog.text.count("a job in BATCH mode takes no checkpoints") == times
        assert caplog.text.count("a job in BATCH mode begins without state") == times
