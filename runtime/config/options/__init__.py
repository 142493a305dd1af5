"""Every option of Yarrow, by group: the one place where configuration keys are declared.

Owner: any thread; built once at import, immutable. Values are looked up through
`yarrow.runtime.config.settings`. A key may be declared once; a group that declares a key a second time
fails at import.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final

import msgspec

from yarrow.runtime.config.options import (
    batch,
    blob,
    checkpointing,
    cluster,
    execution,
    high_availability,
    jobmanager,
    metrics,
    pipeline,
    python,
    resourcemanager,
    rest,
    restart_strategy,
    rocksdb,
    rpc,
    security,
    sink,
    taskmanager,
    testing,
    web,
    yarn,
)
from yarrow.runtime.config.values.option import EngineOption

__all__ = ["ALL_OPTIONS", "OPTION_GROUPS", "OPTION_OF_NAME", "OptionGroup", "index_of_names", "options_of"]


class OptionGroup(msgspec.Struct, frozen=True):
    """Options of one module under the title they have in docs/config.md."""

    title: str
    module: ModuleType

    @property
    def options(self) -> tuple[EngineOption[Any], ...]:
        return options_of(self.module)


def options_of(module: ModuleType) -> tuple[EngineOption[Any], ...]:
    """The options a module declares, in the order of declaration."""
    return tuple(value for value in vars(module).values() if isinstance(value, EngineOption))


def index_of_names(options: tuple[EngineOption[Any], ...]) -> Mapping[str, EngineOption[Any]]:
    """Each key, and each older name that leads to one option alone, to that option.

    Raises ValueError when a key is declared twice.
    """
    by_key: dict[str, EngineOption[Any]] = {}
    for declared in options:
        if declared.key in by_key:
            raise ValueError(f"the configuration key {declared.key} is declared twice")
        by_key[declared.key] = declared
    owners: dict[str, list[EngineOption[Any]]] = {}
    for declared in options:
        for name in declared.names[1:]:
            owners.setdefault(name, []).append(declared)
    single = {name: found[0] for name, found in owners.items() if len(found) == 1 and name not in by_key}
    return MappingProxyType(by_key | single)


OPTION_GROUPS: Final = (
    OptionGroup("Execution of a job", execution),
    OptionGroup("Batch mode on Spark", batch),
    OptionGroup("The job's graph", pipeline),
    OptionGroup("Python environment", python),
    OptionGroup("JobManager", jobmanager),
    OptionGroup("TaskExecutor", taskmanager),
    OptionGroup("ResourceManager and slots", resourcemanager),
    OptionGroup("Messages and heartbeats", rpc),
    OptionGroup("REST", rest),
    OptionGroup("Dashboard", web),
    OptionGroup("Blob store", blob),
    OptionGroup("Metrics", metrics),
    OptionGroup("Checkpoints and state", checkpointing),
    OptionGroup("RocksDB state backend", rocksdb),
    OptionGroup("Sinks", sink),
    OptionGroup("Restart after a failure", restart_strategy),
    OptionGroup("High availability", high_availability),
    OptionGroup("YARN", yarn),
    OptionGroup("Security", security),
    OptionGroup("Processes", cluster),
    OptionGroup("Tests of the engine", testing),
)
ALL_OPTIONS: Final = tuple(option for group in OPTION_GROUPS for option in group.options)
#: Keys and unambiguous older names to their option.
OPTION_OF_NAME: Final = index_of_names(ALL_OPTIONS)
