"""Checks of a whole configuration: known keys, readable values, and the rules between them.

Owner: any thread. `check` is pure and returns what it found; `validate` raises it and logs the warnings,
each key once in the life of the process. Nothing here reads files or asks the machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from yarrow.runtime.config.checkpoint_rules import CHECKPOINT_RULES
from yarrow.runtime.config.data_ports import data_port_problem
from yarrow.runtime.config.known_keys import WITHOUT_EFFECT, KeyKind, family_of, kind_of, nearest_keys
from yarrow.runtime.config.memory import check_job_manager_memory, task_executor_budget
from yarrow.runtime.config.options import (
    ALL_OPTIONS,
    checkpointing,
    execution,
    high_availability,
    jobmanager,
    pipeline,
    resourcemanager,
    rest,
    rpc,
    taskmanager,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import (
    ConfigError,
    ContradictoryOptions,
    InvalidConfiguration,
    MemoryBudgetError,
    UnknownOption,
)
from yarrow.runtime.config.values.option import EngineOption

_log = logging.getLogger("yarrow.config")


class ConfigWarning(msgspec.Struct, frozen=True):
    """A key that is accepted and worth a word."""

    key: str
    message: str


class Findings(msgspec.Struct, frozen=True):
    """The errors and the warnings about a configuration."""

    problems: Sequence[ConfigError]
    warnings: Sequence[ConfigWarning]


class OnceLog:
    """Logs each warning of a key once."""

    def __init__(self, logger: logging.Logger = _log) -> None:
        self._logger = logger
        self._said: set[str] = set()

    def say(self, warning: ConfigWarning) -> None:
        if warning.key not in self._said:
            self._said.add(warning.key)
            self._logger.warning("%s", warning.message)


_process_log: Final = OnceLog()
#: Most configurations set few of some hundred options, and each job, harness and client checks its own.
_NAMES_OF_OPTIONS: Final = tuple((frozenset(option.names), option) for option in ALL_OPTIONS)


#: Options without effect in BATCH mode, each with what the job does instead.
_UNHEEDED_IN_BATCH: Final[Sequence[tuple[EngineOption[Any], str]]] = (
    (checkpointing.INTERVAL, "takes no checkpoints"),
    (
        execution.SAVEPOINT_PATH,
        f"begins without state. Set {execution.RUNTIME_MODE.key} to STREAMING to go on from the savepoint",
    ),
)


def tell_unheeded_in_batch(settings: Settings, log: OnceLog | None = None) -> None:
    """Logs the options that have no effect on a job for which AUTOMATIC chose BATCH, each key once a process."""
    for warning in _unheeded_in_batch(settings):
        (log or _process_log).say(warning)


def validate(settings: Settings, log: OnceLog | None = None) -> None:
    """Raises the one ConfigError that `check` finds, or InvalidConfiguration with all; logs its warnings."""
    findings = check(settings)
    for warning in findings.warnings:
        (log or _process_log).say(warning)
    if len(findings.problems) == 1:
        raise findings.problems[0]
    if findings.problems:
        raise InvalidConfiguration(findings.problems)


def check(settings: Settings) -> Findings:
    """All errors in `settings`.

    Rules between values are checked only if all values can be read, so that one mistake gives one error.
    """
    problems: list[ConfigError] = []
    warnings: list[ConfigWarning] = []
    for key in settings:
        match kind_of(key):
            case KeyKind.UNKNOWN:
                problems.append(UnknownOption(key, nearest_keys(key), settings.origin_of(key)))
            case KeyKind.FLINK_ONLY:
                warnings.append(_without_effect(settings, key))
            case KeyKind.OPTION | KeyKind.FAMILY:
                pass
    unreadable: dict[str, ConfigError] = {}
    for option in _options_set_in(settings):
        try:
            settings.get(option)
        except ConfigError as error:
            # Several options may read one text (`rest.port`); the text is reported once.
            unreadable.setdefault(error.keys[0], error)
        name = settings.name_in_use(option)
        if name in option.deprecated_keys and not option.no_effect:
            warnings.append(
                ConfigWarning(name, f"{name} is an older name of {option.key}{_set_in(settings, name)}.")
            )
        if option.no_effect and name in (option.key, *option.deprecated_keys):
            warnings.append(
                ConfigWarning(
                    option.key,
                    f"{name}{_set_in(settings, name)} has no effect in Yarrow: {option.no_effect}.",
                )
            )
    problems += unreadable.values()
    if not unreadable:
        if settings.get(execution.RUNTIME_MODE) is execution.RuntimeMode.BATCH:
            warnings += _unheeded_in_batch(settings)
        for rule in RULES:
            problems += rule(settings)
    return Findings(tuple(problems), tuple(warnings))


def _options_set_in(settings: Settings) -> Iterator[EngineOption[Any]]:
    """Options that may have another value than their default. A map may be set by keys of its entries."""
    keys = frozenset(settings)
    for names, option in _NAMES_OF_OPTIONS:
        if option.type.is_map or not names.isdisjoint(keys):
            yield option


def _unheeded_in_batch(settings: Settings) -> Iterator[ConfigWarning]:
    """Yields a warning for each set option that has no effect in BATCH mode."""
    for option, why in _UNHEEDED_IN_BATCH:
        if (name := settings.name_in_use(option)) is not None:
            text = f"{name}{_set_in(settings, name)} has no effect: a job in BATCH mode {why}."
            yield ConfigWarning(option.key, text)


def _set_in(settings: Settings, key: str) -> str:
    origin = settings.origin_of(key)
    return f" (set in {origin})" if origin else ""


def _without_effect(settings: Settings, key: str) -> ConfigWarning:
    family = family_of(key)
    what = (
        f": {family.doc[0].lower()}{family.doc[1:].rstrip('.')}" if family is not None and family.doc else ""
    )
    if key in WITHOUT_EFFECT:
        what = f"; {WITHOUT_EFFECT[key]}"
    return ConfigWarning(
        key, f"{key}{_set_in(settings, key)} is a key of Flink without effect in Yarrow; it is ignored{what}."
    )


def _memory_of_task_executor(settings: Settings) -> Iterator[ConfigError]:
    try:
        task_executor_budget(settings)
    except MemoryBudgetError as error:
        yield error


def _memory_of_job_manager(settings: Settings) -> Iterator[ConfigError]:
    try:
        check_job_manager_memory(settings)
    except MemoryBudgetError as error:
        yield error


def _total_within_process_size(settings: Settings) -> Iterator[ConfigError]:
    """Flink's total size, when both are set, is a part of the process size."""
    for option in (taskmanager.PROCESS_SIZE, jobmanager.PROCESS_SIZE):
        (part_key,) = option.fallback_keys
        part_text = settings.text(part_key)
        if part_text is None or settings.name_in_use(option) != option.key:
            continue
        part, whole = option.parse(part_text, part_key, settings.origin_of(part_key)), settings.get(option)
        if part > whole:
            yield MemoryBudgetError(
                f"{part_key} ({part.human()}) is more than {option.key} ({whole.human()}), of which it is a"
                f" part. Remove {part_key}, which has no effect beside {option.key}, or raise {option.key}.",
                (part_key, option.key),
            )


def _parallelism(settings: Settings) -> Iterator[ConfigError]:
    parallelism, most = settings.get(pipeline.DEFAULT_PARALLELISM), settings.get(pipeline.MAX_PARALLELISM)
    limit = most if most > 0 else pipeline.MAX_MAX_PARALLELISM
    if parallelism > limit:
        yield ContradictoryOptions(
            f"{pipeline.DEFAULT_PARALLELISM.key} is {parallelism}, more than the {limit} that"
            f" {pipeline.MAX_PARALLELISM.key} = {most} allows. Lower the first or raise the second.",
            (pipeline.DEFAULT_PARALLELISM.key, pipeline.MAX_PARALLELISM.key),
        )


def _heartbeats(settings: Settings) -> Iterator[ConfigError]:
    interval, timeout = settings.get(rpc.HEARTBEAT_INTERVAL), settings.get(rpc.HEARTBEAT_TIMEOUT)
    if timeout <= interval:
        yield ContradictoryOptions(
            f"{rpc.HEARTBEAT_TIMEOUT.key} ({timeout}) must be longer than {rpc.HEARTBEAT_INTERVAL.key} ("
            f"{interval}): every peer would be taken for dead between two heartbeats. Raise the first or lower"
            " the second.",
            (rpc.HEARTBEAT_TIMEOUT.key, rpc.HEARTBEAT_INTERVAL.key),
        )


def _slot_bounds(settings: Settings) -> Iterator[ConfigError]:
    least, most = (
        settings.get(resourcemanager.NUMBER_OF_SLOTS_MIN),
        settings.get(resourcemanager.NUMBER_OF_SLOTS_MAX),
    )
    if least > most:
        yield ContradictoryOptions(
            f"{resourcemanager.NUMBER_OF_SLOTS_MIN.key} ({least}) is more than"
            f" {resourcemanager.NUMBER_OF_SLOTS_MAX.key} ({most}). Lower the first or raise the second.",
            (resourcemanager.NUMBER_OF_SLOTS_MIN.key, resourcemanager.NUMBER_OF_SLOTS_MAX.key),
        )


#: Ports that one process listens on, so that no two may be the same.
_PORTS_OF_ONE_PROCESS: Final[tuple[tuple[EngineOption[Any], ...], ...]] = (
    (jobmanager.RPC_PORT, rest.BIND_PORT),
    (taskmanager.RPC_PORT, taskmanager.DATA_PORT),
)


def _ports(settings: Settings) -> Iterator[ConfigError]:
    for options in _PORTS_OF_ONE_PROCESS:
        taken: dict[int, str] = {}
        for option in options:
            value = settings.get(option)
            port = value if isinstance(value, int) else value.single
            if not port:
                continue
            name = settings.name_in_use(option) or option.key
            if port in taken:
                yield ContradictoryOptions(
                    f"{name} and {taken[port]} are both port {port} of one process. Change one of them.",
                    (name, taken[port]),
                )
            taken.setdefault(port, name)


def _data_ports(settings: Settings) -> Iterator[ConfigError]:
    problem = data_port_problem(settings, settings.get(taskmanager.NUMBER_OF_TASK_SLOTS))
    if problem is not None:
        yield problem


def _high_availability(settings: Settings) -> Iterator[ConfigError]:
    if settings.get(high_availability.TYPE).lower() != "zookeeper":
        return
    for option in (high_availability.ZOOKEEPER_QUORUM, high_availability.STORAGE_DIR):
        if not settings.is_set(option):
            yield ContradictoryOptions(
                f"{high_availability.TYPE.key} is zookeeper, which needs {option.key}: {option.doc} Set it.",
                (high_availability.TYPE.key, option.key),
            )


RULES: Final[tuple[Callable[[Settings], Iterator[ConfigError]], ...]] = (
    _memory_of_task_executor,
    _memory_of_job_manager,
    _total_within_process_size,
    _parallelism,
    _heartbeats,
    _slot_bounds,
    _ports,
    _data_ports,
    _high_availability,
    *CHECKPOINT_RULES,
)
