"""Files and -D arguments: both forms, where values come from, and errors that name file and line."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from yarrow.runtime.config.files import (
    load_file,
    load_settings,
    parse_dynamic_properties,
    parse_dynamic_property,
    parse_legacy,
    parse_yaml,
)
from yarrow.runtime.config.options import taskmanager
from yarrow.runtime.config.validation import validate
from yarrow.runtime.config.values.errors import ConfigFileError, DuplicateKey, InvalidDynamicProperty

NESTED = """\
# a comment
taskmanager:
  numberOfTaskSlots: 4
  memory:
    process: {size: 2g}   # flow style
rest.port: 9000
io.tmp.dirs:
  - /a
  - "/b;c"
pipeline:
  global-job-parameters:
    owner: ada
  name: 'with: colon # and hash'
"""


def test_nested_and_dotted_yaml() -> None:
    settings = parse_yaml(NESTED, "config.yaml")
    assert settings.to_dict() == {
        "taskmanager.numberOfTaskSlots": "4",
        "taskmanager.memory.process.size": "2g",
        "rest.port": "9000",
        "io.tmp.dirs": "[/a,/b;c]",
        "pipeline.global-job-parameters.owner": "ada",
        "pipeline.name": "with: colon # and hash",
    }
    assert settings.origin_of("rest.port") == "config.yaml, line 6"
    validate(settings)


@pytest.mark.parametrize("text", ["010", "1:30", "yes", "1e3", "0x1F", "2013-01-01", "1_000", "true"])
def test_yaml_keeps_the_text_of_a_value(text: str) -> None:
    assert parse_yaml(f"a.b: {text}", "f").text("a.b") == text


def test_line_form() -> None:
    text = "# comment\n\nrest.port: 9000\npipeline.name: a: b   # why\nenv.pid.dir:    /run\n"
    settings = parse_legacy(text, "flink-conf.yaml")
    assert settings.to_dict() == {"rest.port": "9000", "pipeline.name": "a: b", "env.pid.dir": "/run"}
    assert settings.origin_of("env.pid.dir") == "flink-conf.yaml, line 5"


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("rest.port: 1\na: 2\nrest.port: 3\n", "rest.port", (1, 3)),
        ("rest:\n  port: 1\nrest.port: 2\n", "rest.port", (2, 3)),
        ("rest:\n  port: 1\n  address: x\nrest:\n  port: 2\n", "rest.port", (2, 5)),
    ],
)
def test_a_key_set_twice_names_both_lines(text: str, key: str, lines: tuple[int, int]) -> None:
    with pytest.raises(DuplicateKey) as caught:
        parse_yaml(text, "conf/config.yaml")
    assert (caught.value.key, caught.value.lines) == (key, lines)
    assert f"line {lines[0]} and in line {lines[1]}" in str(caught.value)
    assert "conf/config.yaml" in str(caught.value)


def test_a_key_set_twice_in_the_line_form() -> None:
    with pytest.raises(DuplicateKey) as caught:
        parse_legacy("a: 1\n\na: 1\n", "flink-conf.yaml")
    assert caught.value.lines == (1, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", "not YAML"),
        ("- a\n- b\n", "must hold `key: value` entries"),
        ("just words", "must hold `key: value` entries"),
        ("rest:\n  port:\n", "line 2: rest.port has no value"),
        ("a: ~", "has no value"),
        ("a:\n  - {b: 1}\n", "line 2: an element of the list a"),
        ("? [a, b]\n: 1\n", "a key must be a plain text"),
    ],
)
def test_yaml_that_is_no_configuration(text: str, message: str) -> None:
    with pytest.raises(ConfigFileError, match=message) as caught:
        parse_yaml(text, "config.yaml")
    assert "config.yaml" in str(caught.value)


@pytest.mark.parametrize("line", ["rest.port", "rest.port:", "rest.port:9000", ": 1"])
def test_a_line_of_another_form(line: str) -> None:
    with pytest.raises(ConfigFileError, match="line 2"):
        parse_legacy(f"a: 1\n{line}\n", "flink-conf.yaml")


def test_an_empty_file_sets_nothing() -> None:
    assert len(parse_yaml("# nothing\n", "f")) == 0
    assert len(parse_legacy("", "f")) == 0


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="Cannot read"):
        load_file(tmp_path / "config.yaml")
    broken = tmp_path / "config.yaml"
    broken.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigFileError, match="not UTF-8"):
        load_file(broken)


def directory(base: Path, name: str, **files: str) -> Path:
    folder = base / name
    folder.mkdir()
    for file, text in files.items():
        (folder / {"new": "config.yaml", "old": "flink-conf.yaml"}[file]).write_text(text, encoding="utf-8")
    return folder


def test_where_the_configuration_comes_from(tmp_path: Path) -> None:
    ours = directory(tmp_path, "ours", new="rest:\n  port: 1\n")
    flinks = directory(tmp_path, "flinks", old="rest.port: 2\n")
    default = directory(tmp_path, "default", new="rest.port: 3")
    both = {"YARROW_CONF_DIR": str(ours), "FLINK_CONF_DIR": str(flinks)}
    assert load_settings(both, default).text("rest.port") == "1"
    assert load_settings({"FLINK_CONF_DIR": str(flinks)}, default).text("rest.port") == "2"
    assert load_settings({}, default).text("rest.port") == "3"
    assert load_settings({}, tmp_path / "missing").text("rest.port") is None
    assert load_settings({}).text("rest.port") is None
    assert load_settings(both, default, ["-Drest.port=4"]).text("rest.port") == "4"


def test_a_directory_that_is_named_must_have_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="named by YARROW_CONF_DIR, has neither"):
        load_settings({"YARROW_CONF_DIR": str(tmp_path)})


def test_the_newer_file_wins_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = directory(tmp_path, "conf", new="rest.port: 1", old="rest.port: 2")
    with caplog.at_level(logging.WARNING, logger="yarrow.config"):
        assert load_settings({}, folder).text("rest.port") == "1"
    assert "is ignored" in caplog.text


@pytest.mark.parametrize(
    ("argument", "pair"),
    [
        ("a.b=c", ("a.b", "c")),
        ("-Da.b=c=d", ("a.b", "c=d")),
        ("-D a.b = c", ("a.b", "c")),
        ("a.b=", ("a.b", "")),
        ("-Dexecution.attached", ("execution.attached", "true")),
    ],
)
def test_dynamic_properties(argument: str, pair: tuple[str, str]) -> None:
    assert parse_dynamic_property(argument) == pair


@pytest.mark.parametrize("argument", ["", "-D", "=1", "-D=1"])
def test_a_dynamic_property_needs_a_key(argument: str) -> None:
    with pytest.raises(InvalidDynamicProperty, match="names no key"):
        parse_dynamic_property(argument)


def test_the_last_dynamic_property_counts() -> None:
    settings = parse_dynamic_properties(
        ["taskmanager.numberOfTaskSlots=2", "taskmanager.numberOfTaskSlots=3"]
    )
    assert settings.get(taskmanager.NUMBER_OF_TASK_SLOTS) == 3
    assert settings.origin_of("taskmanager.numberOfTaskSlots") == "-D on the command line"
