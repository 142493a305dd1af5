"""What PyFlink's programs call without need here: it is kept, read back, and told once why it has no effect."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import ExecutionConfig
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.runtime.config import validation
from yarrow.runtime.config.validation import OnceLog

Call = Callable[[StreamExecutionEnvironment], object]

CALLS: dict[str, tuple[Call, str]] = {
    "pipeline.jars": (
        lambda env: env.add_jars("file:///a.jar", "file:///b.jar"),
        "nothing of a job runs in Java",
    ),
    "pipeline.classpaths": (lambda env: env.add_classpaths("file:///a"), "nothing of a job runs in Java"),
    "state.changelog.enabled": (
        lambda env: env.enable_changelog_state_backend(True),
        "state has no log of changes",
    ),
    "pipeline.closure-cleaner-level": (
        lambda env: env.get_config().disable_closure_cleaner(),
        "functions are pickled as Python has them",
    ),
    "pipeline.force-kryo": (
        lambda env: env.get_config().enable_force_kryo(),
        "values are written by their declared types",
    ),
    "pipeline.force-avro": (
        lambda env: env.get_config().enable_force_avro(),
        "values are written by their declared types",
    ),
}


@pytest.mark.parametrize("key", CALLS)
def test_the_program_runs_and_is_told_once(
    key: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "_process_log", OnceLog())
    call, reason = CALLS[key]
    env = environment()
    call(env)
    call(env)
    env.from_collection([1]).print()
    with caplog.at_level(logging.WARNING, logger="yarrow.config"):
        env.get_job_graph(clear_transformations=False)
        env.get_job_graph()
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"{key} ") and reason in message


def test_jars_are_kept_in_order() -> None:
    env = environment()
    env.add_jars("file:///a.jar")
    env.add_jars("file:///b.jar", "file:///c.jar")
    assert (
        env.get_configuration().get_string("pipeline.jars", "") == "file:///a.jar;file:///b.jar;file:///c.jar"
    )


def test_the_changelog_is_unset_on_or_off() -> None:
    env = environment()
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(True).is_changelog_state_backend_enabled() is True
    assert env.enable_changelog_state_backend(False).is_changelog_state_backend_enabled() is False


def test_switches_of_java_are_read_back() -> None:
    config = ExecutionConfig()
    assert config.is_closure_cleaner_enabled()
    assert not config.disable_closure_cleaner().is_closure_cleaner_enabled()
    assert config.enable_closure_cleaner().is_closure_cleaner_enabled()
    assert not config.is_force_kryo_enabled() and config.enable_force_kryo().is_force_kryo_enabled()
    assert not config.disable_force_kryo().is_force_kryo_enabled()
    assert not config.is_force_avro_enabled() and config.enable_force_avro().is_force_avro_enabled()
    assert not config.disable_force_avro().is_force_avro_enabled()
    assert config.get_default_kryo_serializer_classes() == {}
    assert config.get_registered_kryo_types() == config.get_registered_pojo_types() == []
