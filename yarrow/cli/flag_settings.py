"""Evaluates flags that several actions share: the program, the settings, and the cluster's REST.

Owner: the main thread. Imports nothing of the engine before it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from yarrow.client.errors import CommandError
from yarrow.runtime.config.validation import validate

if TYPE_CHECKING:
    from yarrow.cli.parameters.action import Given
    from yarrow.cli.parameters.yarn_flags import YarnFlags
    from yarrow.cli.program import Program
    from yarrow.client.rest.rest_client import RestClient
    from yarrow.runtime.config.settings import Settings


def program_of(given: Given, arguments: Sequence[str] | None) -> Program:
    """The program that -py, -pym, -c or the first argument names, with the rest as its own arguments."""
    from yarrow.cli.program import Program

    rest = list(arguments or ())
    path, module = given.get("python"), given.get("py_module")
    if path is None and module is None and rest:
        path = rest.pop(0)
        if path.startswith("-"):
            raise CommandError(f"There is no flag {path}: `yarrow run -h` shows all flags.")
    files = tuple(file for file in (given.get("py_files") or "").split(",") if file)
    return Program(path, given.get("entry_class") or module, tuple(rest), files)


def settings_of(
    given: Given,
    target: str | None,
    address: str | None,
    flags: YarnFlags | None = None,
    values: Mapping[str, object] | None = None,
) -> Settings:
    """The configuration in use: the files, overridden by -D, by the given flags, and by the target.

    `flags` replaces the given flags of YARN. `values` holds keys that override those of the flags. Raises
    ConfigError for impossible settings.
    """
    from yarrow.cli.parameters.yarn_flags import YarnFlags
    from yarrow.cli.targets import with_target

    config = configuration(given).overlay({**given.settings(), **(values or {})}, "the command line")
    config = with_target(config, target, address, flags or YarnFlags(**given.of_yarn()))
    validate(config)
    return config


def configuration(given: Given) -> Settings:
    """The configuration files, overridden by -D."""
    from yarrow.cli.targets import load_configuration

    return load_configuration(dynamic_of(given))


def dynamic_of(given: Given) -> Sequence[str]:
    """The values of -D, in either form."""
    return [*(given.get("dynamic") or ()), *(given.get("yarn_dynamic") or ())]


def rest_of(given: Given) -> RestClient:
    """REST of the cluster that flags, configuration or properties file name."""
    from yarrow.cli.targets import rest_client, with_session

    return rest_client(with_session(settings_of(given, given["target"], given["address"])))


def application_settings(given: Given) -> Settings:
    """The settings that find an application on YARN, by id or name."""
    from yarrow.cli.parameters.yarn_flags import YarnFlags

    return settings_of(given, "yarn-session", None, YarnFlags(application_id=given["application"]))


def show_yarn(given: Given) -> None:
    """Prints nodes, memory, cores and queues of YARN."""
    from yarrow.client.yarn.yarn_query import show_resources

    show_resources(configuration(given))
