"""Public names of a package or module that load their modules when they are first asked for.

Owner: the thread that asks; the interpreter's import lock serves several. Must not load a module earlier.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loading(owner: str, modules: Mapping[str, str], package: str | None = None) -> Callable[[str], Any]:
    """The `__getattr__` of the package or module `owner`.

    `modules` gives for each public name the module of `package` that defines it; None = of the owner, a package.
    """

    def load(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {owner!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package or owner}.{module}"), name)
        # The next use finds the name itself.
        setattr(sys.modules[owner], name, found)
        return found

    return load
