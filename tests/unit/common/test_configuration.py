"""Configuration and ConfigOption: types, defaults, fallback keys, errors; the two views over a
Configuration.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common import ConfigOption, ConfigOptions, Configuration, Duration, ExecutionConfig, MemorySize
from yarrow.datastream.checkpoint_config import CheckpointConfig
from yarrow.datastream.checkpointing_mode import CheckpointingMode
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.config.settings import Settings


class Color(Enum):
    """A type of option."""

    DARK_RED = 1
    BLUE = 2


def test_values_come_back_as_they_were_set() -> None:
    configuration = Configuration()
    configuration.set_string("s", "x").set_integer("i", 3).set_boolean("b", True).set_float("f", 1.5)
    configuration.set_bytearray("raw", bytearray(b"\x00\x01"))
    assert configuration.get_string("s", "") == "x"
    assert configuration.get_integer("i", 0) == 3
    assert configuration.get_boolean("b", False) is True
    assert configuration.get_float("f", 0.0) == 1.5
    assert configuration.get_bytearray("raw", bytearray()) == bytearray(b"\x00\x01")
    assert configuration.get_integer("missing", 7) == 7


def test_text_of_a_file_is_converted_where_it_is_read() -> None:
    configuration = Configuration.from_dict({"i": "3", "b": "TRUE", "f": "1.5"})
    assert configuration.get_integer("i", 0) == 3
    assert configuration.get_boolean("b", False) is True
    assert configuration.get_float("f", 0.0) == 1.5
    assert Configuration.from_dict({"b": True}).to_dict() == {"b": "true"}


def test_what_cannot_be_converted_is_named() -> None:
    configuration = Configuration.from_dict({"slots": "many", "flag": "yes"})
    with pytest.raises(ValueError, match=r"slots: 'many' is no whole number"):
        configuration.get_integer("slots", 1)
    with pytest.raises(ValueError, match="flag"):
        configuration.get_boolean("flag", False)
    with pytest.raises(TypeError, match="slots"):
        configuration.set_integer("slots", "3")  # type: ignore[arg-type]


def test_adding_removing_and_copying() -> None:
    first = Configuration.from_dict({"a": 1})
    second = Configuration(first).add_all(Configuration.from_dict({"b": 2}), prefix="p.")
    assert second.key_set() == {"a", "p.b"}
    assert first.key_set() == {"a"}
    assert second.remove_config("a") and not second.remove_config("a")
    assert not second.contains_key("a")
    target: dict[str, Any] = {}
    second.add_all_to_dict(target)
    assert target == {"p.b": 2}


@pytest.mark.parametrize("text", ["a;b", " a ; b ", "[a, b]", "['a', 'b']"])
def test_lists(text: str) -> None:
    assert Configuration.parse_list_value(text) == ["a", "b"]


OPTIONS: list[tuple[ConfigOption[Any], str, object]] = [
    (ConfigOptions.key("k").boolean_type().default_value(False), "true", True),
    (ConfigOptions.key("k").int_type().default_value(1), "12", 12),
    (ConfigOptions.key("k").double_type().default_value(1.0), "0.25", 0.25),
    (ConfigOptions.key("k").string_type().no_default_value(), "x", "x"),
    (ConfigOptions.key("k").duration_type().no_default_value(), "10 s", Duration.of_seconds(10)),
    (ConfigOptions.key("k").memory_type().no_default_value(), "1 gb", MemorySize.of_mebi_bytes(1024)),
    (ConfigOptions.key("k").enum_type(Color).default_value(Color.BLUE), "dark-red", Color.DARK_RED),
    (ConfigOptions.key("k").map_type().no_default_value(), "a:1, b:2:3", {"a": "1", "b": "2:3"}),
    (ConfigOptions.key("k").int_type().as_list().no_default_value(), "1;2", [1, 2]),
]


@pytest.mark.parametrize(("option", "text", "value"), OPTIONS)
def test_options_read_text_and_write_text_that_they_read(
    option: ConfigOption[Any], text: str, value: object
) -> None:
    configuration = Configuration.from_dict({"k": text})
    assert configuration.get(option) == value
    assert Configuration.from_dict(Configuration().set(option, value).to_dict()).get(option) == value


def test_an_option_falls_back_in_order() -> None:
    option = ConfigOptions.key("new").int_type().default_value(1).with_fallback_keys("old", "older")
    assert Configuration().get(option) == 1
    assert Configuration().get(option, 5) == 5
    assert Configuration.from_dict({"older": "3"}).get(option, 5) == 3
    assert Configuration.from_dict({"older": "3", "old": "2"}).get(option) == 2
    assert Configuration.from_dict({"older": "3", "new": "4"}).get(option) == 4
    assert Configuration.from_dict({"old": "2"}).contains(option)


@pytest.mark.parametrize(
    ("option", "text"), [(option, "?") for option, _, _ in OPTIONS if option.type_name() != "String"]
)
def test_a_value_of_the_wrong_type_names_key_and_value(option: ConfigOption[Any], text: str) -> None:
    with pytest.raises(ValueError, match=r"k: '\?' is no"):
        Configuration.from_dict({"k": text}).get(option)


@given(st.integers(min_value=0, max_value=10**18))
def test_durations_and_sizes_read_what_they_print(number: int) -> None:
    assert Duration.parse(str(Duration.of_nanos(number))) == Duration.of_nanos(number)
    assert MemorySize.parse(str(MemorySize(number))) == MemorySize(number)


@pytest.mark.parametrize(
    ("text", "millis"),
    [("500", 500), ("1 min", 60_000), ("2h", 7_200_000), ("PT1.5S", 1_500), ("P1DT1H", 90_000_000)],
)
def test_durations(text: str, millis: int) -> None:
    assert Duration.parse(text).to_millis() == millis


@pytest.mark.parametrize("text", ["", "s", "10 parsecs", "-1 s", "1.5 s", "P", "PT"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        Duration.parse(text)


def test_execution_config_is_a_view() -> None:
    configuration = Configuration.from_dict({"pipeline.auto-watermark-interval": "1 s"})
    config = ExecutionConfig(configuration)
    assert config.get_auto_watermark_interval() == 1_000
    config.set_parallelism(4).enable_object_reuse().disable_generic_types()
    assert configuration.to_dict()["parallelism.default"] == "4"
    assert config.is_object_reuse_enabled() and config.has_generic_types_disabled()
    assert ExecutionConfig().get_max_parallelism() == -1
    config.set_global_job_parameters({"query": "a,b:c"})
    assert config.get_global_job_parameters() == {"query": "a,b:c"}


def test_a_map_survives_as_text() -> None:
    """The text form is what reaches a file, an executor and the workers."""
    parameters = {"query": "a,b:c", "quote": "it's 'so'", "plain": "1", "list": "x;y"}
    configuration = Configuration()
    ExecutionConfig(configuration).set_global_job_parameters(parameters)
    text = Configuration.from_dict(configuration.to_dict())
    assert ExecutionConfig(text).get_global_job_parameters() == parameters
    assert Settings(text.to_dict()).get(pipeline.GLOBAL_JOB_PARAMETERS) == parameters


@pytest.mark.parametrize("wrong", [0, -1, 32_769])
def test_max_parallelism_has_limits(wrong: int) -> None:
    with pytest.raises(ValueError, match="max parallelism"):
        ExecutionConfig().set_max_parallelism(wrong)


def test_checkpoint_config_is_a_view() -> None:
    configuration = Configuration.from_dict({"execution.checkpointing.mode": "at-least-once"})
    config = CheckpointConfig(configuration)
    assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert not config.is_checkpointing_enabled()
    assert config.set_checkpoint_interval(1_000).is_checkpointing_enabled()
    assert configuration.to_dict()["execution.checkpointing.interval"] == "1 s"
    with pytest.raises(ValueError, match="at least 10 ms"):
        config.set_checkpoint_interval(9)
    assert config.is_fail_on_checkpointing_errors()
    assert not config.set_fail_on_checkpointing_errors(False).is_fail_on_checkpointing_errors()
