"""Turns the flags of YARN into configuration. The letters differ between `session` and `run`, the meaning does not.

Owner: the main thread. YARN is not asked here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from yarrow.cli.parameters.flags import OF_THE_START, YARN_FLAGS, of_run
from yarrow.client.errors import CommandError
from yarrow.client.targets import YARN_APPLICATION, YARN_CLUSTER, YARN_PER_JOB, YARN_SESSION, YARN_TARGETS
from yarrow.runtime.config.options import OPTION_OF_NAME, execution, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.option import EngineOption


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnFlags:
    """Values of the flags, as given; None = not given."""

    application_id: str | None = None
    containers: int | None = None
    master_memory: str | None = None
    task_memory: str | None = None
    slots: int | None = None
    queue: str | None = None
    name: str | None = None
    application_type: str | None = None
    ship: Sequence[str] | None = None
    node_label: str | None = None
    zookeeper_namespace: str | None = None
    environment: str | None = None

    @property
    def any(self) -> bool:
        """Whether any was given."""
        return any(getattr(self, field.name) is not None for field in fields(self))

    def settings(self) -> Sequence[tuple[EngineOption[Any], object]]:
        """The options and values of the given flags."""
        return tuple(
            (OPTION_OF_NAME[flag.key], flag.value(value))
            for flag in YARN_FLAGS
            if (value := getattr(self, flag.name)) is not None
        )

    def of_the_start(self, is_run: bool = False) -> list[str]:
        """The given flags that concern an application's start, as written: of `run`, else of `session`."""
        return [
            (of_run(flag) if is_run else flag).written[0]
            for flag in OF_THE_START
            if getattr(self, flag.name) is not None
        ]


def target_of(target: str | None, address: str | None, flags: YarnFlags) -> str | None:
    """The execution.target that -t, -m and the flags of YARN mean; None if they name none.

    Raises CommandError for flags without effect.
    """
    if address == YARN_CLUSTER:
        if target not in (None, *YARN_TARGETS):
            raise CommandError(f"-m {YARN_CLUSTER} and -t {target} contradict each other: leave one out.")
        return target or (YARN_PER_JOB if flags.application_id is None else YARN_SESSION)
    if address is not None and target in YARN_TARGETS:
        raise CommandError(
            f"-m {address} names a REST server, and {target} finds its own on YARN: leave out -m, or the target to run"
            " there."
        )
    if target is None and address is None and flags.application_id is not None:
        return YARN_SESSION
    return target


def application_target(target: str | None) -> str:
    """The single target of `run-application`."""
    if target not in (None, YARN_APPLICATION):
        raise CommandError(f"run-application takes -t {YARN_APPLICATION}, not {target}: see `yarrow run -t`.")
    return YARN_APPLICATION


def check_flags(target: str | None, flags: YarnFlags) -> None:
    """Refuses flags of YARN with another target: a job must not run elsewhere than intended."""
    if flags.any and target not in YARN_TARGETS:
        raise CommandError(
            f"--env and flags that begin with -y are for YARN, but {execution.TARGET.key} is"
            f" {target or 'not set'}. Add -m {YARN_CLUSTER} (an application of its own), -yid APPLICATION (a"
            f" session), or -t {' | '.join(YARN_TARGETS)}."
        )


def with_flags(config: Settings, flags: YarnFlags) -> Settings:
    """The configuration with the flags. As in Flink, -D overrides a flag of YARN; a line names the overridden one.

    Raises CommandError if they name two applications.
    """
    heeded: dict[str, object] = {}
    for option, value in flags.settings():
        name = config.name_in_use(option)
        if name is None or not config.origin_of(name).startswith("-D"):
            heeded[option.key] = value
            continue
        before, meant = config.text(name), Settings({option.key: value}).text(option.key)
        if before == meant:
            continue
        if option is yarn.APPLICATION_ID:
            raise CommandError(
                f"-D {name}={before} and the flag for {meant} name two applications: leave one of them out."
            )
        print(
            f"-D {name}={before} goes before the flag that sets {name} to {meant}, as in Flink.",
            file=sys.stderr,
        )
    return config.overlay(heeded, "the command line")


def say_of_running_session(flags: YarnFlags, is_run: bool = False) -> None:
    """Prints the flags for a session's start that a running session ignores."""
    if unheeded := flags.of_the_start(is_run):
        print(
            f"{', '.join(unheeded)}: without effect, the session runs already and keeps its settings.",
            file=sys.stderr,
        )


def say_without_effect(jar: str | None, streaming: bool) -> None:
    """Prints the flags of old scripts that have no effect here."""
    if jar is not None:
        print("-yj / -j names Flink's jar, which is not used: it has no effect.", file=sys.stderr)
    if streaming:
        print("-yst / -st has no effect: sessions always run streams.", file=sys.stderr)
