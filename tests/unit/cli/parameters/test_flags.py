"""The table of flags: docs/cli.md is made from it, and each key in it is an option."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.pages import flags_page
from yarrow.cli import client_interpreter, run_command
from yarrow.cli.main import app
from yarrow.cli.parameters import flags
from yarrow.cli.parameters.action import Given
from yarrow.cli.parameters.flags import Flag, Through
from yarrow.cli.parameters.yarn_flags import YarnFlags
from yarrow.runtime.config import validation
from yarrow.runtime.config.known_keys import WITHOUT_EFFECT
from yarrow.runtime.config.options import OPTION_OF_NAME
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import OnceLog, validate

ROOT = Path(__file__).resolve().parents[4]
TABLE = tuple(value for value in vars(flags).values() if isinstance(value, Flag))


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == flags_page.rendered(page), "docs/cli.md is out of date: run python -m tests.support.pages"


def test_the_page_has_each_flag_that_help_has() -> None:
    page = flags_page.rendered("")
    for name in flags_page.actions():
        shown = CliRunner().invoke(app, [name, "-h"]).output
        for line in shown.partition("Options:")[2].splitlines():
            written = line.strip().partition(" ")[0].rstrip(",")
            if written.startswith("-") and written != "-h":
                assert f"`{written}`" in page, f"{name} {written}"


@pytest.mark.parametrize("flag", [flag for flag in TABLE if flag.key], ids=lambda flag: f"{flag.written}")
def test_a_flag_that_sets_a_key_sets_an_option(flag: Flag) -> None:
    if flag is flags.CLASSPATH:
        assert flag.key in WITHOUT_EFFECT and flag.key not in OPTION_OF_NAME
        return
    assert OPTION_OF_NAME[flag.key].key == flag.key, "the present name, no former one"


def test_flags_of_yarn_are_the_fields_of_their_values() -> None:
    assert {flag.name for flag in flags.YARN_FLAGS} == {field.name for field in fields(YarnFlags)}
    assert all(flag.through is Through.YARN for flag in flags.YARN_FLAGS)


def test_what_was_not_given_sets_nothing() -> None:
    of_run = flags_page.actions()["run"].flags
    nothing = Given(of_run, {flag.name: flag.default for flag in of_run})
    assert nothing.settings() == {} and not YarnFlags(**nothing.of_yarn()).any


def test_what_was_given_sets_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "savepoint").mkdir()
    monkeypatch.chdir(tmp_path)
    of_run = flags_page.actions()["run"].flags
    given = Given(
        of_run,
        {flag.name: flag.default for flag in of_run}
        | {
            "detached": True,
            "parallelism": 3,
            "savepoint": "savepoint",
            "restore_mode": "claim",
            "claim_mode": "no_claim",
            "yarn_detached": True,
            "master_memory": "1024",
            "target": "local",
        },
    )
    assert given.settings() == {
        "execution.attached": False,
        "parallelism.default": 3,
        "execution.state-recovery.path": str(tmp_path / "savepoint"),
        "execution.state-recovery.claim-mode": "NO_CLAIM",
    }, "where it runs and what YARN is told go their own ways; -cm goes before -rm"
    validate(Settings(given.settings()))
    (setting,) = YarnFlags(**given.of_yarn()).settings()
    assert (setting[0].key, setting[1]) == ("jobmanager.memory.process.size", "1024m")


@pytest.mark.parametrize("command", ["run", "run-application"])
def test_classes_of_java_are_accepted_and_told_once(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(validation, "_process_log", OnceLog())
    ran: list[Settings] = []
    monkeypatch.setattr(run_command, "run", lambda program, config: ran.append(config))
    monkeypatch.setattr(client_interpreter, "go_on_in_client_interpreter", lambda config: None)
    monkeypatch.setenv("FLINK_CONF_DIR", str(tmp_path))
    (tmp_path / "config.yaml").write_text("")
    (tmp_path / "job.py").write_text("")
    given = ["-C", "file:///a.jar", "--classpath", "http://host/b.jar", str(tmp_path / "job.py")]
    with caplog.at_level(logging.WARNING, logger="yarrow.config"):
        outcome = CliRunner().invoke(app, [command, *given])
    assert outcome.exit_code == 0, outcome.output
    (config,) = ran
    assert config.to_dict()["pipeline.classpaths"] == "file:///a.jar;http://host/b.jar"
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("pipeline.classpaths (set in the command line) ")
    assert "nothing of a job runs in Java" in message
