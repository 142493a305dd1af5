"""The declarations: each key once, documented, readable, and Flink's unless it is listed here as our own."""

from __future__ import annotations

from typing import Any

import pytest

from yarrow.common.values.secret_keys import is_secret_key
from yarrow.common.values.value_types import BOOLEAN, DURATION, MEMORY_SIZE, STRING
from yarrow.runtime.config.known_keys import FAMILIES, family_of, flink_keys
from yarrow.runtime.config.options import ALL_OPTIONS, OPTION_GROUPS, index_of_names, options_of
from yarrow.runtime.config.values.errors import InvalidOptionValue
from yarrow.runtime.config.values.option import EngineOption, option

#: Keys that Flink does not have. A key that is missing here and in Flink's list is most likely mistyped.
OWN_KEYS = {
    "execution.batch.combine",
    "execution.batch.local-max-size",
    "execution.batch.longest-stage",
    "execution.batch.max-rows",
    "execution.batch.max-size",
    "execution.batch.slice-time",
    "execution.checkpointing.allow-non-replayable-sources",
    "execution.checkpointing.jobmanager-storage.max-state-size",
    "execution.batch.combine-memory",
    "execution.batch.pipeline-directory",
    "execution.batch.sort-memory",
    "execution.batch.spark.full-compiler",
    "execution.batch.spark.sql",
    "execution.batch.spark.start-timeout",
    "execution.exchange-mode",
    "execution.history.output",
    "execution.history.savepoint-path",
    "execution.history.start-stream",
    "execution.history.until",
    "execution.task-threads",
    "taskmanager.data.transport",
    "execution.in-process",
    "fs.webhdfs.retry-timeout",
    "jobmanager.scheduling-mode",
    "pipeline.inline-functions",
    "pipeline.watermark.max-jump",
    "python.event-loop",
    "rpc.ask.timeout",
    "rpc.connect.timeout",
    "rpc.message.max-size",
    "security.cluster.directory",
    "security.rest.authentication",
    "security.snapshot.secret-file",
    "security.snapshot.trust-pickle",
    "sink.committer.retry-delay",
    "state.backend.debug",
    "taskmanager.memory.network.loop.size",
    "taskmanager.memory.network.task-pool.batches",
    "taskmanager.memory.network.task-pool.size",
    "taskmanager.memory.slot.minimum-size",
    "taskmanager.memory.supervisor.size",
    "taskmanager.memory.warning-threshold",
    "taskmanager.network.blocking-spool.max-size",
    "taskmanager.network.channel.credit-batches",
    "taskmanager.network.channel.credit-size",
    "taskmanager.network.loop.input-bound",
    "taskmanager.network.max-frame-size",
    "taskmanager.network.stalled-channel-warning",
    "taskmanager.worker.start",
    "web.pages",
    "testing.fault-plan",
    "testing.fault-plan.arguments",
    "yarn.deployment-timeout",
    "yarn.environment",
    "yarn.initial-task-executors",
    "yarn.proxy.allow-cancel",
    "yarn.spark-driver.memory",
    "yarn.spark-driver.vcores",
}

each_option = pytest.mark.parametrize("declared", ALL_OPTIONS, ids=lambda declared: declared.key)


def test_our_own_keys_are_exactly_the_listed_ones() -> None:
    own = {declared.key for declared in ALL_OPTIONS if family_of(declared.key) is None} - flink_keys()
    assert own == OWN_KEYS


def test_every_other_name_is_one_of_flink() -> None:
    assert [name for declared in ALL_OPTIONS for name in declared.names[1:] if name not in flink_keys()] == []


def test_a_key_is_declared_once() -> None:
    keys = [declared.key for declared in ALL_OPTIONS]
    assert len(keys) == len(set(keys))
    twice = option("a.key", BOOLEAN, "true", "A sentence.")
    with pytest.raises(ValueError, match=r"a\.key is declared twice"):
        index_of_names((twice, twice))


def test_no_older_name_is_an_option_of_its_own() -> None:
    keys = {declared.key for declared in ALL_OPTIONS}
    assert [name for declared in ALL_OPTIONS for name in declared.deprecated_keys if name in keys] == []


@pytest.mark.slow
@each_option
def test_an_option_is_documented(declared: EngineOption[Any]) -> None:
    assert len(declared.doc) > 15
    assert declared.doc.endswith(".")
    assert declared.doc[0].isupper()
    if declared.default is None:
        assert declared.unset, f"{declared.key} does not say what holds when it is not set"


@pytest.mark.slow
@each_option
def test_default_and_example_are_readable(declared: EngineOption[Any]) -> None:
    declared.parse(declared.type.example)
    if declared.default is not None:
        assert declared.parse(declared.default_text) == declared.default


def test_every_declared_option_is_in_a_group() -> None:
    grouped = [declared.key for group in OPTION_GROUPS for declared in options_of(group.module)]
    assert grouped == [declared.key for declared in ALL_OPTIONS]
    assert len({group.title for group in OPTION_GROUPS}) == len(OPTION_GROUPS)


def test_flinks_keys_are_many_and_clean() -> None:
    keys = flink_keys()
    assert len(keys) > 1000
    assert {
        "taskmanager.numberOfTaskSlots",
        "state.backend",
        "akka.framesize",
        "yarn.application.queue",
    } <= keys
    assert [key for key in keys if key != key.strip() or " " in key or "<" in key] == []


def test_families_are_prefixes_without_overlap_of_options() -> None:
    for family in FAMILIES:
        assert family.prefix.endswith(".")
        assert family.doc


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        (MEMORY_SIZE, "1 zb", "a size with a unit"),
        (DURATION, "1 fortnight", "a duration with a unit"),
        (BOOLEAN, "perhaps", "true or false"),
    ],
)
def test_an_error_names_key_value_expectation_and_example(type_: Any, text: str, expected: str) -> None:
    declared = EngineOption("some.key", type_, None, "A sentence.")
    with pytest.raises(InvalidOptionValue) as caught:
        declared.parse(text, origin="conf/config.yaml, line 3")
    message = str(caught.value)
    for part in (
        "some.key",
        "conf/config.yaml, line 3",
        repr(text),
        expected,
        f"`some.key: {type_.example}`",
    ):
        assert part in message
    assert caught.value.keys == ("some.key",)


def test_an_error_never_shows_a_secret() -> None:
    declared = EngineOption("security.ssl.rest.key-password", BOOLEAN, False, "A sentence.")
    with pytest.raises(InvalidOptionValue) as caught:
        declared.parse("hunter2")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "key",
    [
        "security.ssl.internal.keystore-password",
        "fs.s3a.secret.key",
        "s3.access-key",
        "fs.azure.account.key.name",
        "my.api-key",
        "some.auth.token",
    ],
)
def test_secret_keys(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    ["security.delegation.tokens.enabled", "security.ssl.rest.keystore", "taskmanager.numberOfTaskSlots"],
)
def test_keys_that_are_no_secret(key: str) -> None:
    assert not is_secret_key(key)


def test_a_default_is_written_as_the_file_writes_it() -> None:
    assert option("a.b", STRING, "x", "A sentence.").default_text == "x"
