"""Settings: lookup by the names of an option, layers, secrets and immutability."""

from __future__ import annotations

import datetime
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.configuration import Configuration
from yarrow.common.values.quantities import Duration, MemorySize
from yarrow.common.values.secret_keys import REDACTED
from yarrow.common.values.value_types import PortRange
from yarrow.runtime.config.options import (
    ALL_OPTIONS,
    checkpointing,
    execution,
    jobmanager,
    pipeline,
    python,
    rest,
    rpc,
    taskmanager,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError, InvalidOptionValue


def test_defaults_hold_without_values() -> None:
    settings = Settings()
    assert settings.get(taskmanager.NUMBER_OF_TASK_SLOTS) == 1
    assert settings.get(taskmanager.PROCESS_SIZE) == MemorySize.parse("1g")
    assert settings.get(execution.BUFFER_TIMEOUT) == Duration.of_millis(100)
    assert settings.get(execution.SLICE_TIME) == Duration.of_millis(5)
    assert settings.get(rest.REST_PORT) == 8081
    assert settings.get(taskmanager.CPU_CORES) is None
    assert settings.get(jobmanager.SCHEDULING_MODE) is jobmanager.SchedulingMode.EAGER
    for option in ALL_OPTIONS:
        assert settings.get(option) == option.default
        assert not settings.is_set(option)


def test_values_of_a_program_are_read() -> None:
    configuration = Configuration()
    configuration.set_string("taskmanager.memory.process.size", "2g")
    configuration.set_integer("parallelism.default", 4)
    configuration.set_boolean("execution.in-process", True)
    settings = Settings(configuration.to_dict(), "the program")
    assert settings.get(taskmanager.PROCESS_SIZE) == MemorySize.parse("2 gb")
    assert settings.get(pipeline.DEFAULT_PARALLELISM) == 4
    assert settings.get(execution.IN_PROCESS) is True
    assert settings.origin_of("parallelism.default") == "the program"


def test_plain_values_become_text() -> None:
    settings = Settings(
        {
            "rest.port": 9000,
            "pipeline.object-reuse": True,
            "heartbeat.interval": datetime.timedelta(seconds=5),
            "io.tmp.dirs": ["/a", "/b"],
            "pipeline.global-job-parameters": {"owner": "ada", "n": 1},
            "execution.runtime-mode": execution.RuntimeMode.BATCH,
            "taskmanager.memory.process.size": MemorySize.parse("3g"),
            "pipeline.name": None,
        }
    )
    assert settings.get(rest.REST_PORT) == 9000
    assert settings.get(pipeline.OBJECT_REUSE) is True
    assert settings.get(rpc.HEARTBEAT_INTERVAL) == Duration.of_seconds(5)
    assert settings.get(pipeline.GLOBAL_JOB_PARAMETERS) == {"owner": "ada", "n": "1"}
    assert settings.get(execution.RUNTIME_MODE) is execution.RuntimeMode.BATCH
    assert settings.get(taskmanager.PROCESS_SIZE) == MemorySize.parse("3g")
    assert "pipeline.name" not in settings


@pytest.mark.parametrize("value", [object(), b"bytes", {1, 2}])
def test_values_of_other_types_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"The value of pipeline\.name must be"):
        Settings({"pipeline.name": value})


def test_keys_must_be_texts() -> None:
    with pytest.raises(ConfigError, match="must be a text"):
        Settings({1: "a"})  # type: ignore[dict-item]


def test_directories_given_as_a_list() -> None:
    settings = Settings({"io.tmp.dirs": "/a,/b"})
    assert settings.get(taskmanager.TMP_DIRS) == ("/a", "/b")
    assert Settings({"io.tmp.dirs": ["/a", "/b"]}).get(taskmanager.TMP_DIRS) == ("/a", "/b")
    assert Settings({"python.files": ["a.py", "b,c.zip"]}).get(python.FILES) == ("a.py", "b,c.zip")


def test_fallback_and_older_names() -> None:
    assert Settings({"akka.framesize": "20971520b"}).get(rpc.MESSAGE_MAX_SIZE) == MemorySize.of_mebi_bytes(20)
    assert Settings({"state.backend": "rocksdb"}).get(checkpointing.STATE_BACKEND) == "rocksdb"
    assert Settings({"rest.port": "9000"}).get(rest.BIND_PORT) == PortRange.of(9000)
    both = Settings({"taskmanager.tmp.dirs": "/old", "io.tmp.dirs": "/new"})
    assert both.get(taskmanager.TMP_DIRS) == ("/new",)


def test_an_error_names_the_name_that_was_used() -> None:
    settings = Settings({"execution.buffer-timeout": "soon"}, "-D on the command line")
    with pytest.raises(
        InvalidOptionValue, match=r"execution\.buffer-timeout \(set in -D on the command line\)"
    ):
        settings.get(execution.BUFFER_TIMEOUT)


def test_entries_of_a_map_may_be_keys_of_their_own() -> None:
    settings = Settings(
        {"pipeline.global-job-parameters.owner": "a,b", "pipeline.global-job-parameters": "n:1"}
    )
    assert settings.get(pipeline.GLOBAL_JOB_PARAMETERS) == {"owner": "a,b", "n": "1"}
    assert Settings({"pipeline.global-job-parameters.n": "1"}).is_set(pipeline.GLOBAL_JOB_PARAMETERS)


def test_a_map_that_is_set_has_no_other_entries() -> None:
    option = pipeline.GLOBAL_JOB_PARAMETERS
    settings = Settings({f"{option.key}.owner": "a,b", f"{option.key}.day": "old", option.key: "n:1"})
    assert settings.with_value(option, {"day": "new,er"}).get(option) == {"day": "new,er"}
    assert not settings.with_value(option, None).is_set(option)


def test_the_upper_layer_counts() -> None:
    lower = Settings({"parallelism.default": "2", "rest.port": "9000"}, "the file")
    settings = lower.overlay({"parallelism.default": 8}, "the program")
    assert settings.get(pipeline.DEFAULT_PARALLELISM) == 8
    assert settings.get(rest.REST_PORT) == 9000
    assert settings.origin_of("parallelism.default") == "the program"
    assert settings.origin_of("rest.port") == "the file"
    assert lower.get(pipeline.DEFAULT_PARALLELISM) == 2


def test_a_whole_map_above_replaces_the_entries_below() -> None:
    option = pipeline.GLOBAL_JOB_PARAMETERS
    lower = Settings({f"{option.key}.day": "old", f"{option.key}.owner": "a"}, "the file")
    assert lower.overlay({option.key: "day:new"}).get(option) == {"day": "new"}
    assert lower.overlay({f"{option.key}.day": "new"}).get(option) == {"day": "new", "owner": "a"}
    both = lower.overlay({option.key: "day:new", f"{option.key}.n": "1"})
    assert both.get(option) == {"day": "new", "n": "1"}


def test_an_older_name_above_replaces_the_newer_one_below() -> None:
    lower = Settings({"state.backend.type": "hashmap", "rest.bind-port": "8000-8010"})
    assert lower.overlay({"state.backend": "rocksdb"}).get(checkpointing.STATE_BACKEND) == "rocksdb"
    # rest.port is an option of its own and leaves the narrower key alone.
    assert lower.overlay({"rest.port": "9000"}).get(rest.BIND_PORT) == PortRange.parse("8000-8010")


def test_one_option_is_set_and_taken_out() -> None:
    settings = Settings({"state.backend": "rocksdb"}).with_value(checkpointing.STATE_BACKEND, "hashmap")
    assert settings.to_dict() == {"state.backend.type": "hashmap"}
    cores = Settings().with_value(taskmanager.CPU_CORES, 2.0)
    assert cores.get(taskmanager.CPU_CORES) == 2.0
    assert not cores.with_value(taskmanager.CPU_CORES, None).is_set(taskmanager.CPU_CORES)


def test_secrets_are_hidden() -> None:
    settings = Settings(
        {"security.ssl.rest.key-password": "hunter2", "fs.s3a.secret.key": "s", "rest.port": 1}
    )
    assert settings.to_dict()["security.ssl.rest.key-password"] == REDACTED
    assert settings.to_dict() == {
        "security.ssl.rest.key-password": REDACTED,
        "fs.s3a.secret.key": REDACTED,
        "rest.port": "1",
    }
    assert settings.to_dict(redact=False)["security.ssl.rest.key-password"] == "hunter2"
    assert "hunter2" not in repr(settings)


@given(st.dictionaries(st.text(min_size=1).filter(lambda key: bool(key.strip())), st.text()))
def test_settings_survive_pickling_and_equal_by_value(values: dict[str, str]) -> None:
    settings = Settings(values, "somewhere")
    copy = pickle.loads(pickle.dumps(settings))
    assert copy == settings
    assert hash(copy) == hash(settings)
    assert {key: copy.origin_of(key) for key in copy} == {key: "somewhere" for key in settings}


def test_settings_cannot_be_changed() -> None:
    values: dict[str, object] = {"rest.port": "1"}
    settings = Settings(values)
    values["rest.port"] = "2"
    assert settings.text("rest.port") == "1"
    settings.to_dict()["rest.port"] = "3"
    assert settings.text("rest.port") == "1"
    assert settings.below("rest.") == {"port": "1"}
