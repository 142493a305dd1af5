"""Every option is read by what it is for, or says that it has no effect: then who sets it is warned, and docs/config.md
marks it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, engine_files, parse, walk
from yarrow.runtime.config.options import ALL_OPTIONS, OPTION_GROUPS
from yarrow.runtime.config.values.option import EngineOption

#: Modules that name options without acting on them: the declarations themselves, checks and sums of values, and the
#: objects in which a program keeps its settings.
NOT_READERS = (
    "runtime/config/options/",
    "runtime/config/validation.py",
    "runtime/config/checkpoint_rules.py",
    "runtime/yarn/shared_places.py",
    "yarrow/common/pipeline_options.py",
    "yarrow/common/execution_config.py",
    "yarrow/datastream/checkpoint_options.py",
    "yarrow/datastream/checkpoint_config.py",
)

#: Options that are read through the object in which a program keeps its settings: key -> the method that is called.
READ_BY_METHOD = {"pipeline.auto-generate-uids": "has_auto_generated_uids_enabled"}

_PACKAGE = "yarrow.runtime.config.options"
_KEY_OF_NAME = {
    (group.module.__name__.rpartition(".")[2], name): value.key
    for group in OPTION_GROUPS
    for name, value in vars(group.module).items()
    if isinstance(value, EngineOption)
}


def keys_named(tree: ast.Module) -> Iterator[str]:
    """Keys of the options that a module names as `group.NAME`, or as an imported NAME.

    `group.NAME.key` does not count: who writes a key does not read it.
    """
    groups: dict[str, str] = {}
    written = {
        id(node.value) for node in walk(tree) if isinstance(node, ast.Attribute) and node.attr == "key"
    }
    for node in walk(tree):
        if isinstance(node, ast.Import):
            below = [alias for alias in node.names if alias.name.startswith(f"{_PACKAGE}.") and alias.asname]
            groups |= {str(alias.asname): alias.name.rpartition(".")[2] for alias in below}
        elif isinstance(node, ast.ImportFrom) and node.module == _PACKAGE:
            groups |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{_PACKAGE}."):
            group = (node.module or "").rpartition(".")[2]
            yield from (
                _KEY_OF_NAME[group, alias.name] for alias in node.names if (group, alias.name) in _KEY_OF_NAME
            )
    for node in walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and id(node) not in written:
            key = _KEY_OF_NAME.get((groups.get(node.value.id, ""), node.attr))
            if key is not None:
                yield key


def _reads(path: Path) -> bool:
    return not path.relative_to(ROOT).as_posix().startswith(NOT_READERS)


@pytest.fixture(scope="module")
def read() -> set[str]:
    trees = [parse(path) for path in engine_files() if _reads(path)]
    called = {node.attr for tree in trees for node in walk(tree) if isinstance(node, ast.Attribute)}
    by_method = {key for key, method in READ_BY_METHOD.items() if method in called}
    return by_method | {key for tree in trees for key in keys_named(tree)}


def test_every_option_is_read_or_has_no_effect(read: set[str]) -> None:
    unread = {option.key for option in ALL_OPTIONS} - read - _without_effect()
    assert not unread, f"nothing reads these options, make them work or declare no_effect: {sorted(unread)}"


def test_what_is_read_does_not_say_that_it_has_no_effect(read: set[str]) -> None:
    assert not _without_effect() & read, f"these are read: {sorted(_without_effect() & read)}"


def test_those_that_users_rely_on_work() -> None:
    relied_on = {
        "taskmanager.data.port", "taskmanager.data.bind-port", "fs.default-scheme", "rpc.connect.timeout",
        "process.working-dir", "rest.async.store-duration",
    }  # fmt: skip
    assert not relied_on & _without_effect()


def _without_effect() -> set[str]:
    return {option.key for option in ALL_OPTIONS if option.no_effect}


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("from yarrow.runtime.config.options import rest\nx.get(rest.REST_PORT)", "rest.port"),
        ("from yarrow.runtime.config.options import rest as r\nx.get(r.REST_PORT)", "rest.port"),
        ("from yarrow.runtime.config.options.rest import REST_PORT", "rest.port"),
        ("import yarrow.runtime.config.options.rest as r\nx.get(r.REST_PORT)", "rest.port"),
        ("from yarrow.runtime.config.options import rest\nx[rest.REST_PORT.key] = 1", None),
        ("from somewhere import rest\nx.get(rest.REST_PORT)", None),
    ],
)
def test_a_read_is_found(source: str, key: str | None) -> None:
    assert list(keys_named(ast.parse(source))) == ([] if key is None else [key])
