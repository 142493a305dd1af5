"""Types of streams that this version cannot make: named for programs that annotate with them.

Owner: none. The methods that would return them (`window`) are refused, naming
what is missing; so are their constructors.
"""

from __future__ import annotations

from typing import NoReturn

from yarrow.runtime.common.errors import UnsupportedFeatureError

__all__ = ["WindowedStream"]


def _refuse(name: str, missing: str) -> NoReturn:
    raise UnsupportedFeatureError(f"{name} cannot be made: this version has no {missing}.")


class WindowedStream:
    """A keyed stream cut into windows."""

    def __init__(self, *arguments: object) -> None:
        _refuse("WindowedStream", "windows")
