"""Every option is read by what it is for, or is listed here as declared ahead of the part that will read it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, engine_files, parse
from yarrow.runtime.config.option import ConfigOption
from yarrow.runtime.config.options import ALL_OPTIONS, OPTION_GROUPS

#: Modules that name options without acting on them: the declarations themselves, checks of values, and the
#: objects in which a program keeps its settings.
NOT_READERS = (
    "runtime/config/options/",
    "runtime/config/validation.py",
    "runtime/yarn/shared_places.py",
    "yarrow/common/pipeline_options.py",
    "yarrow/common/execution_config.py",
    "yarrow/datastream/checkpoint_options.py",
    "yarrow/datastream/checkpoint_config.py",
)

#: Options that are read through the object in which a program keeps its settings: key -> the method that is called.
READ_BY_METHOD = {"pipeline.auto-generate-uids": "has_auto_generated_uids_enabled"}

#: Keys that are declared, checked and documented, and that nothing reads yet, by the part that will read them. The list
#: may only shrink.
NOT_YET_READ: dict[str, set[str]] = {
    "checkpoints, savepoints and event time": {
        "execution.checkpointing.local-backup.dirs",
        "execution.checkpointing.local-backup.enabled",
        "execution.state-recovery.from-local",
    },
    "blobs fetched by TaskExecutors": {
        "blob.fetch.num-concurrent",
        "blob.fetch.retries",
        "blob.offload.minsize",
        "blob.server.port",
        "blob.service.cleanup.interval",
        "blob.storage.directory",
    },
    "clusters whose workers come and go": {
        "cluster.registration.error-delay",
        "cluster.registration.refused-registration-delay",
        "resourcemanager.job.timeout",
        "resourcemanager.rpc.port",
        "resourcemanager.standalone.start-up-time",
    },
    "the rest": {
        "cluster.io-pool.size",
        "cluster.services.shutdown-timeout",
        "fs.default-scheme",
        "jobmanager.resource-id",
        "metrics.fetcher.update-interval",
        "process.working-dir",
        "rest.async.store-duration",
        "rest.flamegraph.enabled",
        "rpc.connect.timeout",
        "task.cancellation.interval",
        "taskmanager.data.bind-port",
        "taskmanager.data.port",
        "taskmanager.log.path",
        "web.backpressure.cleanup-interval",
        "web.backpressure.refresh-interval",
        "web.history",
        "web.log.path",
    },
}

_PACKAGE = "yarrow.runtime.config.options"
_KEY_OF_NAME = {
    (group.module.__name__.rpartition(".")[2], name): value.key
    for group in OPTION_GROUPS
    for name, value in vars(group.module).items()
    if isinstance(value, ConfigOption)
}


def keys_named(tree: ast.Module) -> Iterator[str]:
    """Keys of the options that a module names as `group.NAME`, or as an imported NAME.

    `group.NAME.key` does not count: who writes a key does not read it.
    """
    groups: dict[str, str] = {}
    written = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "key"
    }
    for node in ast.walk(tree):
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
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and id(node) not in written:
            key = _KEY_OF_NAME.get((groups.get(node.value.id, ""), node.attr))
            if key is not None:
                yield key


def _reads(path: Path) -> bool:
    return not path.relative_to(ROOT).as_posix().startswith(NOT_READERS)


@pytest.fixture(scope="module")
def read() -> set[str]:
    trees = [parse(path) for path in engine_files() if _reads(path)]
    called = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    by_method = {key for key, method in READ_BY_METHOD.items() if method in called}
    return by_method | {key for tree in trees for key in keys_named(tree)}


def test_every_option_is_read_or_listed(read: set[str]) -> None:
    unread = {option.key for option in ALL_OPTIONS} - read - _listed()
    assert not unread, f"nothing reads these options: {sorted(unread)}"


def test_the_list_names_only_what_is_not_read(read: set[str]) -> None:
    gone = _listed() - {option.key for option in ALL_OPTIONS}
    assert not gone, f"these are no options any more, take them out of the list: {sorted(gone)}"
    assert not _listed() & read, f"these are read now, take them out of the list: {sorted(_listed() & read)}"


def _listed() -> set[str]:
    return {key for keys in NOT_YET_READ.values() for key in keys}


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
