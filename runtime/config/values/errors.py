"""Errors of the configuration: a wrong key, value, file or sum of sizes.

Owner: any thread; plain values. Every message names the key and where it was set, says what is expected and
what to do. The value of a secret option never appears in a message. Nothing here reads options or files.
"""

from __future__ import annotations

from collections.abc import Sequence

from yarrow.runtime.common.errors import YarrowError


class ConfigError(YarrowError, ValueError):
    """Base of everything that can be wrong with a configuration; `keys` names the keys concerned."""

    def __init__(self, message: str, keys: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.keys: tuple[str, ...] = tuple(keys)


class InvalidOptionValue(ConfigError):
    """A value that the type of its option does not accept: wrong unit, wrong type, out of range."""

    def __init__(
        self, key: str, shown_value: str, reason: str, expected: str, example: str, origin: str = ""
    ) -> None:
        where = f" (set in {origin})" if origin else ""
        super().__init__(
            f"Invalid value for {key}{where}: {shown_value}: {reason}."
            f" Expected {expected}, for example `{key}: {example}`.",
            (key,),
        )
        self.key = key
        self.shown_value = shown_value
        self.reason = reason
        self.expected = expected
        self.example = example


class UnknownOption(ConfigError):
    """A key that neither Yarrow nor Flink has; `nearest` holds the known keys that look most alike."""

    def __init__(self, key: str, nearest: Sequence[str] = (), origin: str = "") -> None:
        where = f" (set in {origin})" if origin else ""
        hint = f" Did you mean {', or '.join(nearest)}?" if nearest else ""
        super().__init__(
            f"Unknown configuration key {key}{where}: neither Yarrow nor Flink has it.{hint}"
            " Remove it or correct its name; docs/config.md lists every key.",
            (key,),
        )
        self.key = key
        self.nearest: tuple[str, ...] = tuple(nearest)


class ContradictoryOptions(ConfigError):
    """Values that are each valid but cannot hold together."""


class MemoryBudgetError(ContradictoryOptions):
    """Memory sizes that do not add up."""


class ConfigFileError(ConfigError):
    """A configuration file that cannot be read or is not in the form of its kind; names file and line."""


class DuplicateKey(ConfigFileError):
    """A key that a file sets twice; names both lines."""

    def __init__(self, key: str, path: str, first_line: int, second_line: int) -> None:
        super().__init__(
            f"{path} sets {key} twice, in line {first_line} and in line {second_line}. Remove one of them.",
            (key,),
        )
        self.key = key
        self.lines = (first_line, second_line)


class InvalidDynamicProperty(ConfigError):
    """A `-D key=value` argument that names no key."""


class InvalidConfiguration(ConfigError):
    """More than one thing wrong at once; `problems` holds each error."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(
            f"The configuration has {len(problems)} problems:\n{lines}",
            [key for problem in problems for key in problem.keys],
        )
        self.problems: tuple[ConfigError, ...] = tuple(problems)
