"""What YARN is told: sizes, cores, scripts, variables, access, attempts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from yarrow.client.yarn.deployment import check_labels, check_resources
from yarrow.client.yarn.submission import (
    ContainerContent,
    access_list,
    build_submission,
    divided,
    max_attempts,
    script,
    without_effect,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.yarn.gateways import ApplicationSubmission, ContainerShape, YarnError
from yarrow.runtime.yarn.resource_manager_web import LeafQueue


def submission(**settings: str) -> ApplicationSubmission:
    config = Settings({key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()})
    content = ContainerContent((), {"PYTHONSAFEPATH": "1"}, "environment/bin/python3")
    return build_submission(config, "a name", content, content, content)


def queue(name: str = "default", state: str = "RUNNING", memory_mb: int = 4096, vcores: int = 4) -> LeafQueue:
    return LeafQueue(name, f"root.{name}", state, 0.0, 0, 0, memory_mb, vcores)


def test_sizes_are_mebibytes_and_cores_are_slots() -> None:
    made = submission(
        jobmanager__memory__process__size="1 gb",
        taskmanager__memory__process__size="1073741825b",
        taskmanager__numberOfTaskSlots="3",
    )
    assert made.master == ContainerShape(1024, 1)
    assert made.task_executor == ContainerShape(1025, 3)
    assert (
        submission(yarn__containers__vcores="2", taskmanager__numberOfTaskSlots="3").task_executor.vcores == 2
    )


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"jobmanager\.memory\.process\.size"):
        submission(jobmanager__memory__process__size="16m")
    with pytest.raises(ConfigError, match=r"also holds Skein's ApplicationMaster"):
        submission(jobmanager__memory__process__size="300m")
    with pytest.raises(ConfigError, match=r"taskmanager\.memory\.process\.size"):
        submission(taskmanager__memory__process__size="100m")


def test_labels() -> None:
    both = submission(yarn__application__node_label="gpu")
    assert (both.master.node_label, both.task_executor.node_label, both.node_label) == ("gpu", "gpu", "gpu")
    apart = submission(yarn__application__node_label="a", yarn__taskmanager__node_label="b")
    assert (apart.master.node_label, apart.task_executor.node_label) == ("a", "b")


def test_attempts() -> None:
    assert submission().max_attempts == 1
    assert submission(high_availability__type="zookeeper").max_attempts == 2
    assert submission(high_availability__type="zookeeper", yarn__application_attempts="7").max_attempts == 7


def test_yarns_own_limit_of_attempts_counts() -> None:
    config = Settings({"yarn.application-attempts": "7"})
    assert [max_attempts(config, limit) for limit in (None, 9, 5, 0)] == [7, 7, 5, 1]
    assert max_attempts(Settings({"high-availability.type": "zookeeper"}), 1) == 1


def test_variables_of_the_roles() -> None:
    made = submission(containerized__master__env__A="1", containerized__taskmanager__env__B="2")
    assert made.master_environment["A"] == "1"
    assert "B" not in made.master_environment
    assert made.task_executor_environment == {"PYTHONSAFEPATH": "1", "B": "2"}
    assert "-XX:TieredStopAtLevel=1" in made.master_environment["JDK_JAVA_OPTIONS"]


def test_access() -> None:
    made = submission(yarn__view__acls="a,b g", yarn__modify__acls="*")
    assert (made.view_users, made.view_groups) == (("a", "b"), ("g",))
    assert (made.modify_users, made.modify_groups) == (("*",), ())
    assert access_list(" g") == (("g",), ())
    assert access_list(None) == ((), ())


def test_tags_and_type() -> None:
    assert submission(yarn__tags="a,b", yarn__application__type="Apache Flink").tags == {
        "a",
        "b",
        "apache flink",
    }
    assert submission(yarn__application__type="skein").tags == frozenset()


def test_what_skein_cannot_do_is_said_only_when_it_is_asked_for() -> None:
    assert without_effect(Settings()) == []
    asked = Settings(
        {
            "yarn.application.priority": "5",
            "yarn.application-attempt-failures-validity-interval": "60000",
            "yarn.application.type": "mine",
        }
    )
    said = " ".join(without_effect(asked))
    assert all(key in said for key in ("priority has no effect", "validity-interval has no effect", "`mine`"))


def test_keys_of_tokens_say_that_nothing_gets_new_ones() -> None:
    asked = Settings(
        {
            "security.delegation.tokens.enabled": "false",
            "security.delegation.tokens.renewal.time-ratio": "0.5",
        }
    )
    said = without_effect(asked)
    assert [sentence.partition(":")[0].split(" ")[0] for sentence in said] == [
        "security.delegation.tokens.enabled",
        "security.delegation.tokens.renewal.time-ratio",
    ]


LOGIN = {"security.kerberos.login.keytab": "/keys", "security.kerberos.login.principal": "alice@TEST"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "Set security.kerberos.login.keytab."),
        ({**LOGIN, "security.ssl.internal.enabled": "false"}, "security.ssl.internal.enabled is false"),
        (
            {**LOGIN, "security.delegation.tokens.enabled": "false"},
            "security.delegation.tokens.enabled is false",
        ),
        (
            {**LOGIN, "yarn.security.kerberos.ship-local-keytab": "false"},
            "Set yarn.security.kerberos.localized-keytab-path.",
        ),
        (LOGIN, None),
    ],
)
def test_a_ratio_without_effect_is_said_with_its_cause(settings: dict[str, str], why: str | None) -> None:
    key = "security.delegation.tokens.renewal.time-ratio"
    said = [text for text in without_effect(Settings({**settings, key: "0.5"})) if text.startswith(key)]
    assert len(said) == (why is not None)
    assert all(str(why) in text for text in said)


def test_secrets_of_the_configuration_go_their_own_way() -> None:
    shown, sensitive = divided(Settings({"a": "1", "security.ssl.rest.key-password": "planted"}))
    assert shown == {"a": "1"}
    assert sensitive == {"security.ssl.rest.key-password": "planted"}


def test_the_script_becomes_the_interpreter_without_the_nodes_variables(tmp_path: Path) -> None:
    interpreter = tmp_path / "a python"
    interpreter.write_text('#!/bin/sh\necho $PPID "$@" "[$PYTHONPATH$PYTHONHOME$JDK_JAVA_OPTIONS]"; umask\n')
    interpreter.chmod(0o755)
    environment = {
        "PYTHONPATH": "/evil",
        "PYTHONHOME": "/evil",
        "JDK_JAVA_OPTIONS": "-Xmx1",
        "PATH": "/usr/bin:/bin",
    }
    ran = subprocess.run(
        ["bash", "-c", script(str(interpreter), "a.module")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    shown, mask = ran.stdout.splitlines()
    assert shown.split(" ", 1)[1] == "-m a.module []"
    assert int(mask, 8) == 0o027
    # The parent of the interpreter is ours: no shell stays between.
    assert int(shown.split(" ", 1)[0]) == os.getpid()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"yarn__application__queue": "nowhere"}, r"no queue 'nowhere'.*there are: default, etl"),
        ({"yarn__application__queue": "etl"}, r"Queue etl is STOPPED"),
        (
            {"jobmanager__memory__process__size": "8 gb"},
            r"ApplicationMaster is to have 8192 MiB.*at most 4096 MiB",
        ),
        (
            {"taskmanager__memory__process__size": "8 gb"},
            r"TaskExecutor is to have 8192 MiB.*taskmanager\.memory",
        ),
        ({"taskmanager__numberOfTaskSlots": "5"}, r"5 cores \(yarn\.containers\.vcores.*at most 4"),
        ({"yarn__appmaster__vcores": "5"}, r"ApplicationMaster is to have 5 cores \(yarn\.appmaster\.vcores"),
    ],
)
def test_what_the_queue_cannot_give_is_refused_before_anything_is_uploaded(
    settings: dict[str, str], said: str
) -> None:
    with pytest.raises(YarnError, match=said):
        check_resources(submission(**settings), [queue(), queue("etl", "STOPPED")])


def test_what_fits_or_is_not_known_passes() -> None:
    check_resources(submission(), [queue()])
    check_resources(submission(yarn__application__queue="root.default"), [queue()])
    check_resources(submission(yarn__application__queue="nowhere"), [])
    check_resources(submission(taskmanager__memory__process__size="8 gb"), [queue(memory_mb=0)])


@pytest.mark.parametrize("labels", [frozenset(), frozenset({"ssd"})])
def test_a_label_that_yarn_does_not_have_is_refused_by_its_key(labels: frozenset[str]) -> None:
    master, executor = "yarn__application__node-label", "yarn__taskmanager__node-label"
    there_are = ", ".join(labels) or "none"
    for key in (master, executor):
        name = key.replace("__", ".")
        with pytest.raises(YarnError, match=rf"no node label 'gpu' \({name}\); there are: {there_are}\."):
            check_labels(submission(**{key: "gpu"}), labels)
        check_labels(submission(**{key: "gpu"}), {"gpu"})
        check_labels(submission(**{key: "gpu"}), None)
    check_labels(submission(), labels)


def test_containers_do_not_listen_on_the_loopback_of_the_client() -> None:
    config = Settings(
        {
            "jobmanager.bind-host": "localhost",
            "taskmanager.bind-host": "0.0.0.0",
            "rest.bind-address": "127.0.0.1",
        }
    )
    shown, _ = divided(config)
    assert shown == {"taskmanager.bind-host": "0.0.0.0"}
