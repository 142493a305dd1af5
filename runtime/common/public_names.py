"""Public names of a package that load their modules when they are first asked for.

Owner: the thread that asks; the interpreter's import lock serves several. Must not load a module earlier.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loading(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package; `modules` gives the module in it that defines each public name."""

    def load(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{module}"), name)
        # The next use finds the name itself.
        setattr(sys.modules[package], name, found)
        return found

    return load
