"""What flags that several actions share come to: the program, the settings, REST of the cluster that is meant.

Owner: the main thread. Imports nothing of the engine before it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yarrow.client.errors import CommandError

if TYPE_CHECKING:
    from yarrow.cli.program import Program
    from yarrow.cli.yarn_flags import YarnFlags
    from yarrow.client.rest.rest_client import RestClient
    from yarrow.runtime.config.settings import Settings


def program_of(
    arguments: Sequence[str] | None,
    script: str | None,
    module: str | None,
    entry: str | None,
    python_files: str | None,
) -> Program:
    """The program that -py, -pym, -c or the first argument names, with the rest as its own arguments."""
    from yarrow.cli.program import Program

    rest = list(arguments or ())
    path = script
    if script is None and module is None and rest:
        path = rest.pop(0)
        if path.startswith("-"):
            raise CommandError(f"There is no flag {path}: `yarrow run -h` shows those there are.")
    files = tuple(file for file in (python_files or "").split(",") if file)
    return Program(path, entry or module, tuple(rest), files)


def settings_of(
    dynamic: Sequence[str] | None,
    target: str | None,
    address: str | None,
    values: dict[str, object],
    flags: YarnFlags | None = None,
) -> Settings:
    """The configuration in use: the files, -D before them, `values` of flags that were given, then where it runs.

    Raises ConfigError for what cannot be.
    """
    from yarrow.cli.targets import NO_FLAGS, load_configuration, with_target

    config = load_configuration(dynamic or ())
    config = config.overlay(
        {key: value for key, value in values.items() if value is not None}, "the command line"
    )
    config = with_target(config, target, address, flags or NO_FLAGS)
    config.validate()
    return config


def configuration(dynamic: Sequence[str] | None) -> Settings:
    """The files of the configuration, with -D before them."""
    from yarrow.cli.targets import load_configuration

    return load_configuration(dynamic or ())


def rest_of(
    dynamic: Sequence[str] | None,
    target: str | None,
    address: str | None,
    application_id: str | None,
) -> RestClient:
    """REST of the cluster that flags, configuration or the properties file name."""
    from yarrow.cli.targets import rest_client, with_session
    from yarrow.cli.yarn_flags import YarnFlags

    flags = YarnFlags(application_id=application_id)
    return rest_client(with_session(settings_of(dynamic, target, address, {}, flags)))


def application_settings(application: str | None, dynamic: Sequence[str] | None) -> Settings:
    """The settings with which an application on YARN is found, by id or name."""
    from yarrow.cli.yarn_flags import YarnFlags

    return settings_of(dynamic, "yarn-session", None, {}, YarnFlags(application_id=application))


def show_yarn(dynamic: Sequence[str]) -> None:
    """Prints nodes, memory, cores and queues of YARN."""
    from yarrow.client.yarn.yarn_query import show_resources

    show_resources(configuration(dynamic))
