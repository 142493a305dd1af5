"""Validation: unknown keys, Flink's keys without effect, and values that contradict each other."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.support.pages import config_page
from yarrow.runtime.config.known_keys import WITHOUT_EFFECT, KeyKind, kind_of, nearest_keys
from yarrow.runtime.config.options import ALL_OPTIONS, checkpointing, high_availability, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import OnceLog, check, validate
from yarrow.runtime.config.values.errors import (
    ConfigError,
    ContradictoryOptions,
    InvalidConfiguration,
    InvalidOptionValue,
    MemoryBudgetError,
    UnknownOption,
)
from yarrow.runtime.config.values.option import EngineOption


def only_problem(values: dict[str, object]) -> ConfigError:
    problems = check(Settings(values, "the file")).problems
    assert len(problems) == 1, problems
    return problems[0]


def test_an_empty_configuration_is_valid() -> None:
    findings = check(Settings())
    assert not findings.problems
    assert not findings.warnings


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("taskmanager.numberOfTaskSlot", "taskmanager.numberOfTaskSlots"),
        ("taskmanager.numberoftaskslots", "taskmanager.numberOfTaskSlots"),
        ("taskmanager.memory.proces.size", "taskmanager.memory.process.size"),
        ("execution.buffer_timeout.interval", "execution.buffer-timeout.interval"),
        ("kuberntes.cluster-id", "kubernetes.cluster-id"),
        ("table.exec.mini-batch.enable", "table.exec.mini-batch.enabled"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_ones(key: str, meant: str) -> None:
    problem = only_problem({key: "1"})
    assert isinstance(problem, UnknownOption)
    assert problem.nearest[0] == meant
    assert key in str(problem)
    assert meant in str(problem)
    assert "set in the file" in str(problem)


def test_a_key_like_no_other_gets_no_suggestion() -> None:
    assert list(nearest_keys("zzzzzzzzzzz")) == []
    assert "Did you mean" not in str(only_problem({"zzzzzzzzzzz": "1"}))


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("parallelism.default", KeyKind.OPTION),
        ("akka.framesize", KeyKind.OPTION),
        ("restart-strategy", KeyKind.OPTION),
        ("pipeline.global-job-parameters.any.name", KeyKind.OPTION),
        ("metrics.reporter.mine.port", KeyKind.FAMILY),
        ("flink.hadoop.dfs.replication", KeyKind.FAMILY),
        ("containerized.taskmanager.env.LANG", KeyKind.FAMILY),
        ("env.java.opts.taskmanager", KeyKind.FLINK_ONLY),
        ("s3.endpoint", KeyKind.FLINK_ONLY),
        ("taskmanager.memory.managed.fraction", KeyKind.FLINK_ONLY),
        ("jobmanager.heap.mb", KeyKind.FLINK_ONLY),
        ("metrics.reporter.", KeyKind.UNKNOWN),
        ("parallelism.default.more", KeyKind.UNKNOWN),
    ],
)
def test_kinds_of_keys(key: str, kind: KeyKind) -> None:
    assert kind_of(key) is kind


def test_a_key_of_flink_without_effect_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    log = OnceLog()
    settings = Settings({"taskmanager.memory.managed.fraction": "0.4", "s3.endpoint": "x", "s3.path": "y"})
    with caplog.at_level(logging.WARNING, logger="yarrow.config"):
        validate(settings, log)
        validate(settings, log)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert all("without effect" in message for message in said)


@pytest.mark.parametrize("key", sorted(WITHOUT_EFFECT))
def test_what_programs_set_without_need_is_told_with_its_reason(key: str) -> None:
    assert kind_of(key) is KeyKind.FLINK_ONLY
    (warning,) = check(Settings({key: "true"}, "the program")).warnings
    assert warning.message == (
        f"{key} (set in the program) is a key of Flink without effect in Yarrow; it is ignored; {WITHOUT_EFFECT[key]}."
    )


def test_an_option_without_effect_is_said_once_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    log = OnceLog()
    values = {
        "resourcemanager.rpc.port": "7000",
        "blob.server.port": "7001",
        "state.backend.local-recovery": "true",
        "taskmanager.memory.network.min": "1m",
    }
    with caplog.at_level(logging.WARNING, logger="yarrow.config"):
        validate(Settings(values, "conf/config.yaml"), log)
        validate(Settings(values, "conf/config.yaml"), log)
    said = sorted(record.getMessage() for record in caplog.records)
    assert [message.split(" ")[0] for message in said] == sorted(values)
    assert all("(set in conf/config.yaml) has no effect in Yarrow: " in message for message in said)
    assert said[1].endswith("on the JobManager's port (`jobmanager.rpc.port`).")


@pytest.mark.parametrize(
    "option", [option for option in ALL_OPTIONS if option.no_effect], ids=lambda o: o.key
)
def test_what_has_no_effect_warns_and_is_marked(option: EngineOption[Any]) -> None:
    value = option.type.example if option.default is None else option.type.render(option.default)
    (warning,) = check(Settings({option.key: value})).warnings
    assert warning.key == option.key and option.no_effect in warning.message
    (row,) = [row for row in config_page.render().splitlines() if row.startswith(f"| `{option.key}`")]
    assert f"*No effect*: {option.no_effect}." in row


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"taskmanager.data.port": "50100"}, None),
        ({"taskmanager.data.port": "50100-50103", "taskmanager.numberOfTaskSlots": "4"}, None),
        (
            {"taskmanager.data.port": "50100-50102", "taskmanager.numberOfTaskSlots": "4"},
            "taskmanager.data.port is 50100-50102, 3 port(s), but each of the 4 slots",
        ),
        (
            {"taskmanager.data.bind-port": "50100", "taskmanager.numberOfTaskSlots": "2"},
            "taskmanager.data.bind-port is 50100, 1 port(s), but each of the 2 slots",
        ),
        (
            {"taskmanager.data.bind-port": "50100-50101", "taskmanager.data.port": "6000-6002"},
            "differ in length, 3 and 2",
        ),
    ],
)
def test_every_slot_has_a_data_port(values: dict[str, object], said: str | None) -> None:
    if said is None:
        assert check(Settings(values)).problems == ()
        return
    problem = only_problem(values)
    assert said in str(problem)
    assert "taskmanager.data" in problem.keys[0]


def test_plain_paths_lie_in_the_default_file_system() -> None:
    settings = Settings(
        {
            "fs.default-scheme": "hdfs://name-node:9000/",
            "execution.checkpointing.dir": "/checkpoints",
            "execution.checkpointing.savepoint-dir": "file:///savepoints",
            "high-availability.storageDir": "hdfs://other:1/ha",
            "io.tmp.dirs": "/tmp",
        }
    )
    assert settings.get(checkpointing.DIRECTORY) == "hdfs://name-node:9000/checkpoints"
    assert settings.get(checkpointing.SAVEPOINT_DIRECTORY) == "file:///savepoints"
    assert settings.get(high_availability.STORAGE_DIR) == "hdfs://other:1/ha"
    assert settings.get(taskmanager.TMP_DIRS) == ("/tmp",)
    relative = settings.overlay({"execution.state-recovery.path": "savepoint-1"})
    problem = check(relative).problems[0]
    assert "hdfs://name-node:9000/savepoint-1" in str(problem)
    assert problem.keys == ("execution.state-recovery.path",)


def test_an_older_name_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="yarrow.config"):
        validate(Settings({"state.backend": "hashmap", "akka.framesize": "10485760b"}), OnceLog())
    (record,) = caplog.records
    assert "state.backend is an older name of state.backend.type" in record.getMessage()


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ({"taskmanager.memory.process.size": "200m"}, {"taskmanager.memory.process.size"}),
        (
            {"taskmanager.memory.supervisor.size": "2g"},
            {"taskmanager.memory.supervisor.size"},
        ),
        ({"taskmanager.numberOfTaskSlots": 64}, {"taskmanager.numberOfTaskSlots"}),
        ({"jobmanager.memory.process.size": "100m"}, {"jobmanager.memory.process.size"}),
        ({"jobstore.cache-size": "2g"}, {"jobstore.cache-size"}),
        (
            {"taskmanager.memory.flink.size": "4g", "taskmanager.memory.process.size": "2g"},
            {"taskmanager.memory.flink.size", "taskmanager.memory.process.size"},
        ),
    ],
)
def test_memory_that_does_not_add_up(values: dict[str, object], keys: set[str]) -> None:
    problem = only_problem(values)
    assert isinstance(problem, MemoryBudgetError)
    assert keys <= set(problem.keys)
    assert all(key in str(problem) for key in problem.keys)


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        (
            {"parallelism.default": 200, "pipeline.max-parallelism": 128},
            ("parallelism.default", "pipeline.max-parallelism"),
        ),
        ({"parallelism.default": 40000}, ("parallelism.default", "pipeline.max-parallelism")),
        ({"heartbeat.timeout": "5 s"}, ("heartbeat.timeout", "heartbeat.interval")),
        ({"rest.port": 6123}, ("rest.port", "jobmanager.rpc.port")),
        (
            {"taskmanager.rpc.port": 7000, "taskmanager.data.port": 7000},
            ("taskmanager.data.port", "taskmanager.rpc.port"),
        ),
        (
            {"slotmanager.number-of-slots.min": 5, "slotmanager.number-of-slots.max": 4},
            ("slotmanager.number-of-slots.min", "slotmanager.number-of-slots.max"),
        ),
        (
            {"high-availability.type": "zookeeper", "high-availability.storageDir": "hdfs:///ha"},
            ("high-availability.type", "high-availability.zookeeper.quorum"),
        ),
    ],
)
def test_values_that_contradict_each_other(values: dict[str, object], keys: tuple[str, ...]) -> None:
    problem = only_problem(values)
    assert isinstance(problem, ContradictoryOptions)
    assert problem.keys == keys
    assert all(key in str(problem) for key in keys)


@pytest.mark.parametrize(
    "values",
    [
        {"parallelism.default": 128, "pipeline.max-parallelism": 128},
        {"taskmanager.rpc.port": "0", "taskmanager.data.port": "0"},
        {"taskmanager.rpc.port": "7000-7010", "taskmanager.data.port": "7000-7010"},
        {"taskmanager.memory.flink.size": "2g"},
        {"taskmanager.memory.flink.size": "2g", "taskmanager.memory.process.size": "2g"},
    ],
)
def test_values_that_agree(values: dict[str, object]) -> None:
    assert not check(Settings(values)).problems


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pipeline.max-parallelism", "0"),
        ("pipeline.max-parallelism", "32769"),
        ("taskmanager.numberOfTaskSlots", "0"),
        ("rest.port", "70000"),
        ("taskmanager.worker.start", "thread"),
        ("taskmanager.memory.process.size", "1 zb"),
        ("execution.batch.slice-time", "0 ms"),
    ],
)
def test_a_value_out_of_its_type_is_told_once(key: str, value: str) -> None:
    problem = only_problem({key: value, "parallelism.default": "3"})
    assert isinstance(problem, InvalidOptionValue)
    assert problem.key == key


def test_all_problems_are_told_together() -> None:
    settings = Settings({"no.such.key": "1", "rest.port": "x", "heartbeat.interval": "1 fortnight"})
    with pytest.raises(InvalidConfiguration) as caught:
        validate(settings)
    assert set(caught.value.keys) == {"no.such.key", "rest.port", "heartbeat.interval"}
    assert str(caught.value).count("\n") == 3


def test_a_single_problem_is_raised_as_itself() -> None:
    with pytest.raises(UnknownOption):
        validate(Settings({"no.such.key": "1"}))
