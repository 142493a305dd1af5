"""Action: a function of the command line with its flags, in the form of the command line's library.

Owner: the main thread. flags.py declares the flags. Nothing of the engine is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from yarrow.cli.parameters.flags import Flag, Through


class Given(Mapping[str, Any]):
    """The values of the flags in one call of an action, by name, defaults included."""

    def __init__(self, flags: tuple[Flag, ...], values: Mapping[str, Any]) -> None:
        self._flags = flags
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def settings(self) -> dict[str, object]:
        """The options and values of flags that are plain settings."""
        given = {
            flag.key: flag.value(self[flag.name])
            for flag in self._flags
            if flag.key and flag.through is Through.SETTINGS and self.has(flag.name)
        }
        return {key: value for key, value in given.items() if value is not None}

    def has(self, name: str) -> bool:
        """Whether the flag of that name was given."""
        value = self.get(name)
        return value is not None and value is not False

    def of_yarn(self) -> dict[str, Any]:
        """The given values of YARN's flags; None = not given."""
        return {flag.name: self[flag.name] for flag in self._flags if flag.through is Through.YARN}


class Action:
    """One action of the command: callable with a value for each flag, by its signature."""

    def __init__(self, function: Callable[[Given], None], flags: tuple[Flag, ...]) -> None:
        self.flags = flags
        self._function = function
        # The library reads these.
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__annotations__: dict[str, Any] = {}
        self.__signature__ = inspect.Signature([_parameter(flag) for flag in flags])

    def __call__(self, **values: Any) -> None:
        self._function(Given(self.flags, values))


def action(*flags: Flag) -> Callable[[Callable[[Given], None]], Action]:
    """Makes an Action of a function; help shows the flags in this order."""
    return lambda function: Action(function, flags)


def _parameter(flag: Flag) -> inspect.Parameter:
    declared: Any
    limits: dict[str, Any] = {"min": flag.least, "max": flag.most} if flag.type is int else {}
    if flag.written:
        declared = typer.Option(
            *flag.written, metavar=flag.metavar, help=flag.help, hidden=flag.hidden, **limits
        )
    else:
        declared = typer.Argument(metavar=flag.metavar, help=flag.help, **limits)
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if flag.default is ... else flag.default,
        annotation=Annotated[flag.type | None if flag.default is None else flag.type, declared],
    )
