"""Flags of YARN: what they set, which target they mean, and what is refused because it would run elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from yarrow.cli.parameters.flags import in_megabytes
from yarrow.cli.parameters.yarn_flags import (
    YarnFlags,
    application_target,
    say_of_running_session,
    target_of,
)
from yarrow.cli.session_command import properties_of
from yarrow.cli.targets import rest_client, with_session, with_target
from yarrow.client.errors import CommandError
from yarrow.client.yarn.application_files import ApplicationFiles, SessionProperties
from yarrow.client.yarn.applications import application_of, rest_of
from yarrow.client.yarn.yarn_executor import print_how_to_end
from yarrow.runtime.config.options import execution, jobmanager, taskmanager, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import validate
from yarrow.runtime.yarn.application import ClientSecrets
from yarrow.runtime.yarn.gateways import YarnError

SESSION = "application_1700000000000_0001"
OTHER = "application_1700000000000_0002"


@pytest.mark.parametrize(
    ("given", "meant"), [("1024", "1024m"), (" 7 ", "7m"), ("2g", "2g"), ("512 mb", "512 mb")]
)
def test_memory_without_unit_counts_megabytes(given: str, meant: str) -> None:
    assert in_megabytes(given) == meant


def test_flags_stand_for_keys() -> None:
    flags = YarnFlags(
        containers=3,
        master_memory="1024",
        task_memory="2g",
        slots=2,
        queue="root.jobs",
        name="mine",
        ship=["/a", "/b"],
        environment="none",
    )
    config = with_target(Settings(), None, "yarn-cluster", flags)
    validate(config)
    assert config.get(jobmanager.PROCESS_SIZE).bytes == 1 << 30
    assert config.get(taskmanager.PROCESS_SIZE).bytes == 2 << 30
    assert config.get(taskmanager.NUMBER_OF_TASK_SLOTS) == 2
    assert config.get(yarn.APPLICATION_QUEUE) == "root.jobs"
    assert config.get(yarn.APPLICATION_NAME) == "mine"
    assert config.get(yarn.SHIP_FILES) == ("/a", "/b")
    assert config.get(yarn.INITIAL_TASK_EXECUTORS) == 3
    assert config.get(yarn.ENVIRONMENT) == "none"


def test_dynamic_properties_go_before_flags_as_in_flink_and_a_line_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = YarnFlags(slots=2, queue="a", name="same")
    dynamic = Settings(
        {"taskmanager.numberOfTaskSlots": 3, "yarn.application.name": "same"}, "-D on the command line"
    )
    config = with_target(
        Settings({"yarn.application.queue": "b"}, "conf").overlay(dynamic), None, "yarn-cluster", flags
    )
    assert config.get(taskmanager.NUMBER_OF_TASK_SLOTS) == 3
    assert config.get(yarn.APPLICATION_QUEUE) == "a", "the configuration file comes last"
    (line,) = capsys.readouterr().err.splitlines()
    key = "taskmanager.numberOfTaskSlots"
    assert line == f"-D {key}=3 goes before the flag that sets {key} to 2, as in Flink."


def test_a_flag_and_a_dynamic_property_that_name_two_applications_are_refused() -> None:
    dynamic = Settings({"yarn.application.id": OTHER}, "-D on the command line")
    with pytest.raises(CommandError, match="name two applications"):
        with_target(dynamic, None, None, YarnFlags(application_id=SESSION))


def test_flags_of_the_start_are_named_where_a_session_runs_already(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = YarnFlags(
        application_id=SESSION, containers=3, master_memory="1g", environment="none", zookeeper_namespace="z"
    )
    say_of_running_session(flags)
    assert capsys.readouterr().err.startswith("-n, -jm, --env: without effect")
    say_of_running_session(flags, is_run=True)
    assert capsys.readouterr().err.startswith("-yn, -yjm, --env: without effect")
    say_of_running_session(YarnFlags(application_id=SESSION))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("target", "address", "application", "meant"),
    [
        (None, "yarn-cluster", None, "yarn-per-job"),
        (None, "yarn-cluster", SESSION, "yarn-session"),
        ("yarn-application", "yarn-cluster", None, "yarn-application"),
        (None, None, SESSION, "yarn-session"),
        ("yarn-per-job", None, SESSION, "yarn-per-job"),
        ("remote", None, None, "remote"),
        (None, "host:1", None, None),
        (None, None, None, None),
    ],
)
def test_the_target_that_flags_mean(
    target: str | None, address: str | None, application: str | None, meant: str | None
) -> None:
    assert target_of(target, address, YarnFlags(application_id=application)) == meant


def test_an_application_in_the_configuration_means_its_session() -> None:
    config = with_target(Settings({"yarn.application.id": SESSION}), None, None)
    assert config.get(execution.TARGET) == "yarn-session"


@pytest.mark.parametrize("target", [None, "remote", "local"])
def test_flags_of_yarn_without_yarn_are_refused(target: str | None) -> None:
    with pytest.raises(CommandError, match="-m yarn-cluster"):
        with_target(Settings(), target, None, YarnFlags(task_memory="1g"))


def test_what_a_session_keeps_of_its_command_line_is_no_secret_and_not_of_its_start() -> None:
    given = Settings(
        {
            "parallelism.default": "3",
            "yarn.application.name": "mine",
            "security.ssl.rest.truststore-password": "planted",
        },
        "-D of the command line",
    )
    assert properties_of(Settings({"pipeline.name": "x"}, "conf, line 1").overlay(given)) == {
        "parallelism.default": "3"
    }


def test_contradictions_are_refused() -> None:
    with pytest.raises(CommandError, match="contradict"):
        target_of("local", "yarn-cluster", YarnFlags())
    with pytest.raises(CommandError, match="run-application takes -t yarn-application"):
        application_target("yarn-session")
    assert application_target(None) == "yarn-application"


# The properties file and the secrets beside it


@pytest.fixture
def files(tmp_path: Path) -> ApplicationFiles:
    return ApplicationFiles.of(config_of(tmp_path))


def config_of(folder: Path, **more: str) -> Settings:
    return Settings({"yarn.properties-file.location": str(folder)}).overlay(
        {key.replace("_", "."): value for key, value in more.items()}
    )


def secrets(application_id: str, name: str, address: str = "") -> ClientSecrets:
    return ClientSecrets(
        application_id=application_id,
        name=name,
        rest_token=f"token of {application_id}",
        skein_certificate=b"c",
        skein_key=b"k",
        rest_address=address,
    )


def test_without_a_target_the_session_of_the_properties_file_is_taken_and_named(
    tmp_path: Path, files: ApplicationFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not with_session(config_of(tmp_path)).is_set(execution.TARGET)
    files.write_secrets(secrets(SESSION, "mine"))
    files.write_properties(SessionProperties(SESSION, {"parallelism.default": "3", "pipeline.name": "x"}))
    config = config_of(tmp_path).overlay({"pipeline.name": "y"}, "the command line")
    found = with_session(config.overlay({"parallelism.default": "9"}, "conf/config.yaml, line 3"))
    assert found.get(execution.TARGET) == "yarn-session"
    assert found.get(yarn.APPLICATION_ID) == SESSION
    # Before the file, but not before what the command was given.
    assert (found.text("parallelism.default"), found.text("pipeline.name")) == ("3", "y")
    said = capsys.readouterr().err
    assert str(files.properties_path) in said
    assert "'mine'" in said
    assert SESSION in said


@pytest.mark.parametrize("target", ["local", "remote", "yarn-per-job"])
def test_a_target_goes_before_the_properties_file(
    tmp_path: Path, files: ApplicationFiles, target: str
) -> None:
    files.write_properties(SessionProperties(SESSION))
    config = config_of(tmp_path, execution_target=target)
    assert with_session(config) == config


def test_an_application_is_found_by_id_and_by_name(tmp_path: Path, files: ApplicationFiles) -> None:
    files.write_secrets(secrets(SESSION, "mine"))
    files.write_secrets(secrets(OTHER, "another"))
    for named, found in ((SESSION, SESSION), (OTHER, OTHER), ("mine", SESSION), ("another", OTHER)):
        config = config_of(tmp_path, yarn_application_id=named)
        assert application_of(config).application_id == found
    files.write_properties(SessionProperties(OTHER))
    assert application_of(config_of(tmp_path)).application_id == OTHER


def test_what_names_no_application_is_refused(tmp_path: Path, files: ApplicationFiles) -> None:
    with pytest.raises(CommandError, match="No application is named"):
        application_of(config_of(tmp_path))
    with pytest.raises(CommandError, match=f"no secrets of {SESSION} in {tmp_path}"):
        application_of(config_of(tmp_path, yarn_application_id=SESSION))
    files.write_secrets(secrets(SESSION, "twice"))
    files.write_secrets(secrets(OTHER, "twice"))
    with pytest.raises(CommandError, match=f"Several applications.*{SESSION}.*{OTHER}"):
        application_of(config_of(tmp_path, yarn_application_id="twice"))
    with pytest.raises(CommandError, match=r"No application is called 'nobody'.*twice"):
        application_of(config_of(tmp_path, yarn_application_id="nobody"))
    with pytest.raises(YarnError, match="no application's id"):
        application_of(config_of(tmp_path, yarn_application_id="application_x"))


def test_a_file_that_cannot_be_read_hides_no_other(tmp_path: Path, files: ApplicationFiles) -> None:
    files.write_secrets(secrets(SESSION, "mine"))
    (tmp_path / f".yarrow-application-{OTHER}").write_bytes(b"of another version")
    (tmp_path / f".yarrow-application-{OTHER}").chmod(0o600)
    assert application_of(config_of(tmp_path, yarn_application_id="mine")).application_id == SESSION
    with pytest.raises(YarnError, match=f"{OTHER} is not of this version"):
        application_of(config_of(tmp_path, yarn_application_id="another"))


def test_management_of_an_own_application_needs_its_id(tmp_path: Path, files: ApplicationFiles) -> None:
    files.write_properties(SessionProperties(SESSION))
    for target in ("yarn-per-job", "yarn-application"):
        with pytest.raises(CommandError, match="name the application with -yid"):
            rest_client(config_of(tmp_path, execution_target=target))


def test_a_known_address_is_used_without_asking_yarn(tmp_path: Path, files: ApplicationFiles) -> None:
    rest = rest_of(config_of(tmp_path), secrets(SESSION, "mine", "http://10.0.0.7:4711"))
    assert rest.address == "http://10.0.0.7:4711"


def test_what_is_left_running_is_told_with_what_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_how_to_end(SESSION)
    first, last = capsys.readouterr().out.splitlines()
    assert f"`yarrow list -yid {SESSION}`" in first
    assert last == f"  yarn application -kill {SESSION}"
    print_how_to_end(SESSION, "0" * 32)
    _, cancel, kill = capsys.readouterr().out.splitlines()
    assert cancel == f"  yarrow cancel -yid {SESSION} {'0' * 32}"
    assert kill == f"or, where that fails: yarn application -kill {SESSION}"
