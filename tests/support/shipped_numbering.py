"""The operator of tests/support/numbering as a user's package outside of this checkout."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parent / "numbering"


def copied(folder: Path) -> Path:
    """A copy of the package below `folder`."""
    return Path(shutil.copytree(SOURCE, folder / "numbering", ignore=shutil.ignore_patterns("__pycache__")))


@contextmanager
def imported(folder: Path) -> Iterator[ModuleType]:
    """The package as the client's program imports it from `folder`; forgotten at the end."""
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        yield importlib.import_module("numbering")
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "numbering"]:
            del sys.modules[name]
