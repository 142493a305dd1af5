"""Validation: unknown keys, Flink's keys without effect, and values that contradict each other."""

from __future__ import annotations

import logging

import pytest

from yarrow.runtime.config.errors import (
    ConfigError,
    ContradictoryOptions,
    InvalidConfiguration,
    InvalidOptionValue,
    MemoryBudgetError,
    UnknownOption,
)
from yarrow.runtime.config.known_keys import WITHOUT_EFFECT, KeyKind, kind_of, nearest_keys
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import OnceLog, check, validate


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
            {"taskmanager.memory.supervisor.size": "2g", "taskmanager.memory.network.min": "1m"},
            {"taskmanager.memory.supervisor.size"},
        ),
        ({"taskmanager.numberOfTaskSlots": 64}, {"taskmanager.numberOfTaskSlots"}),
        (
            {"taskmanager.memory.network.min": "2g", "taskmanager.memory.network.max": "1g"},
            {"taskmanager.memory.network.max"},
        ),
        ({"taskmanager.memory.network.min": "900m"}, {"taskmanager.memory.network.min"}),
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
        settings.validate()
    assert set(caught.value.keys) == {"no.such.key", "rest.port", "heartbeat.interval"}
    assert str(caught.value).count("\n") == 3


def test_a_single_problem_is_raised_as_itself() -> None:
    with pytest.raises(UnknownOption):
        Settings({"no.such.key": "1"}).validate()
