"""An operator of tests/support, numbering if none is named, as a user's package outside of this checkout."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

SOURCES = Path(__file__).parent


def copied(folder: Path, name: str = "numbering") -> Path:
    """A copy of the package below `folder`."""
    return Path(shutil.copytree(SOURCES / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")))


@contextmanager
def imported(folder: Path, name: str = "numbering") -> Iterator[ModuleType]:
    """The package as the client's program imports it from `folder`; forgotten at the end."""
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]
