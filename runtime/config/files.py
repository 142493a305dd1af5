"""Configuration files and `-D` arguments: the sources of settings.

Owner: any thread; blocking reads, so not for an event loop. Two forms are read. `config.yaml` has nested YAML
or dotted keys, as in Flink 2. `flink-conf.yaml` has one `key: value` a line, as in Flink 1. Both keep the
text of a value as it stands (no octal numbers, no `yes` for true) and refuse a key that is set twice. Nothing
here knows keys.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from yarrow.common.values.quoted_lists import join_quoted
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigFileError, DuplicateKey, InvalidDynamicProperty

if TYPE_CHECKING:
    import yaml

CONFIG_FILE: Final = "config.yaml"
LEGACY_CONFIG_FILE: Final = "flink-conf.yaml"
#: Variables that name the directory of the configuration, the first that is set counts.
CONF_DIR_VARIABLES: Final = ("YARROW_CONF_DIR", "FLINK_CONF_DIR")

_log = logging.getLogger("yarrow.config")


def load_settings(
    environment: Mapping[str, str], default_directory: Path | None = None, dynamic: Iterable[str] = ()
) -> Settings:
    """Settings of the directory the environment names, else of `default_directory`, below `-D` arguments.

    Without either directory, or when the default one has no file, only `dynamic` counts. Raises
    ConfigFileError when a directory that the environment names has no configuration file, and what the
    readers raise.
    """
    settings = Settings()
    for variable in CONF_DIR_VARIABLES:
        if environment.get(variable):
            settings = load_directory(Path(environment[variable]), named_by=variable)
            break
    else:
        if default_directory is not None and find_config_file(default_directory) is not None:
            settings = load_directory(default_directory)
    return settings.overlay(parse_dynamic_properties(dynamic))


def find_config_file(directory: Path) -> Path | None:
    """The configuration file of a directory: `config.yaml`, else `flink-conf.yaml`, else None."""
    candidates = (directory / CONFIG_FILE, directory / LEGACY_CONFIG_FILE)
    return next((path for path in candidates if path.is_file()), None)


def load_directory(directory: Path, named_by: str = "") -> Settings:
    """Settings of the configuration file in `directory`. Raises ConfigFileError when there is none."""
    path = find_config_file(directory)
    if path is None:
        source = f", named by {named_by}," if named_by else ""
        raise ConfigFileError(
            f"The configuration directory {directory}{source} has neither {CONFIG_FILE} nor"
            f" {LEGACY_CONFIG_FILE}."
            f" Put one there or name another directory."
        )
    ignored = directory / LEGACY_CONFIG_FILE
    if path != ignored and ignored.is_file():
        _log.warning("%s is ignored, because %s is beside it.", ignored, CONFIG_FILE)
    return load_file(path)


def load_file(path: Path) -> Settings:
    """Settings of one file, in the form its name stands for: lines for `flink-conf.yaml`, else YAML.

    Raises ConfigFileError naming file and line, DuplicateKey for a key that is set twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigFileError(f"Cannot read the configuration file {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigFileError(
            f"The configuration file {path} is not UTF-8: byte {error.start} cannot be read."
            f" Save it as UTF-8."
        ) from error
    read = parse_legacy if path.name == LEGACY_CONFIG_FILE else parse_yaml
    return read(text, str(path))


def parse_yaml(text: str, path: str) -> Settings:
    """Settings of YAML text: nested mappings and dotted keys, which may be mixed. Errors name `path`."""
    import yaml  # most programs run without a configuration file

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigFileError(f"{path} is not YAML: {_one_line(str(error))}") from error
    if root is None:
        return Settings()
    if not isinstance(root, yaml.MappingNode):
        raise ConfigFileError(
            f"{path} must hold `key: value` entries, but line {_line(root)} begins otherwise."
        )
    return _collect(_flatten(root, "", path), path)


def parse_legacy(text: str, path: str) -> Settings:
    """Settings of `key: value` lines; `#` begins a comment. Errors name `path`."""

    def entries() -> Iterator[tuple[str, str, int]]:
        for number, line in enumerate(text.splitlines(), start=1):
            content = line.partition("#")[0].strip()
            if not content:
                continue
            key, colon, value = content.partition(": ")
            if not colon or not key.strip() or not value.strip():
                raise ConfigFileError(
                    f"{path}, line {number}, is not of the form `key: value`: a key, a colon, a space"
                    f" and a value."
                )
            yield key.strip(), value.strip(), number

    return _collect(entries(), path)


def parse_dynamic_property(argument: str) -> tuple[str, str]:
    """Key and value of one `-D` argument, `key=value` with or without the `-D`.

    A bare key means `true`, as in Flink. Raises InvalidDynamicProperty when there is no key.
    """
    key, equals, value = argument.strip().removeprefix("-D").strip().partition("=")
    if not key.strip():
        raise InvalidDynamicProperty(
            "A -D argument names no key. Expected -D key=value, for example `-D parallelism.default=4`."
        )
    return key.strip(), value.strip() if equals else "true"


def parse_dynamic_properties(arguments: Iterable[str]) -> Settings:
    """Settings of several `-D` arguments; the last one of a key counts."""
    return Settings(
        dict(parse_dynamic_property(argument) for argument in arguments), "-D on the command line"
    )


def _collect(entries: Iterator[tuple[str, str, int]], path: str) -> Settings:
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for key, value, line in entries:
        if key in values:
            raise DuplicateKey(key, path, lines[key], line)
        values[key], lines[key] = value, line
    return Settings(values, {key: f"{path}, line {line}" for key, line in lines.items()})


def _flatten(node: yaml.MappingNode, prefix: str, path: str) -> Iterator[tuple[str, str, int]]:
    import yaml

    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or not key_node.value.strip():
            raise ConfigFileError(f"{path}, line {_line(key_node)}: a key must be a plain text.")
        key = f"{prefix}{key_node.value.strip()}"
        match value_node:
            case yaml.MappingNode():
                yield from _flatten(value_node, f"{key}.", path)
            case yaml.SequenceNode():
                parts = [_scalar(item, key, path) for item in value_node.value]
                yield key, f"[{join_quoted(parts, ',')}]", _line(key_node)
            case _:
                yield key, _scalar(value_node, key, path), _line(key_node)


def _scalar(node: yaml.Node, key: str, path: str) -> str:
    import yaml

    if not isinstance(node, yaml.ScalarNode):
        raise ConfigFileError(
            f"{path}, line {_line(node)}: an element of the list {key} must be a plain value."
        )
    plain = node.style is None
    if plain and node.value.strip() in ("", "~", "null"):
        raise ConfigFileError(
            f"{path}, line {_line(node)}: {key} has no value. Give it one or remove the line."
        )
    return str(node.value)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _one_line(text: str) -> str:
    return " ".join(text.split())
