"""A `distutils.version` for as long as Skein is imported, which compares one version by it.

Owner: the thread that imports Skein. distutils is gone from Python 3.12. On 3.11 setuptools replaces it with
all of itself, which costs every master and client a quarter of a second. Modules that are already loaded
stay.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

_NAMES: Final = ("distutils", "distutils.version")
_NUMBER: Final = re.compile(r"\d+")


class LooseVersion:
    """The numbers of a version, compared in their order."""

    def __init__(self, text: str) -> None:
        self.version = tuple(int(number) for number in _NUMBER.findall(text))

    def __lt__(self, other: LooseVersion | str) -> bool:
        return self.version < (LooseVersion(other) if isinstance(other, str) else other).version


@contextmanager
def distutils_stand_in() -> Iterator[None]:
    """In the block, `from distutils.version import LooseVersion` finds the one above."""
    if any(name in sys.modules for name in _NAMES):
        yield
        return
    package, version = ModuleType(_NAMES[0]), ModuleType(_NAMES[1])
    package.__path__ = []
    version.LooseVersion = LooseVersion  # type: ignore[attr-defined]
    package.version = version  # type: ignore[attr-defined]
    sys.modules.update(zip(_NAMES, (package, version), strict=True))
    try:
        yield
    finally:
        for name in _NAMES:
            sys.modules.pop(name, None)
