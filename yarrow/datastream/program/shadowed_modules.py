"""Files beside a program that stand in the way of modules which Yarrow needs: `msgspec.py`, `numpy/`.

Owner: the thread whose import has failed. Uses the standard library's import machinery alone, and only after a failure:
what it looks for may be any other module.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder


def shadowing_files() -> list[str]:
    """Of the modules imported so far, the files in the program's folder (the first of the path) that hide another."""
    if not sys.path or sys.flags.safe_path:
        return []
    folder = os.path.abspath(sys.path[0])
    others = [entry for entry in sys.path if os.path.abspath(entry) != folder]
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or name == "__main__" or not isinstance(file, str):
            continue
        beside = os.path.dirname(file)
        is_package = os.path.basename(file).startswith("__init__.")
        if os.path.abspath(os.path.dirname(beside) if is_package else beside) != folder:
            continue
        if name in sys.stdlib_module_names or PathFinder.find_spec(name, others) is not None:
            found.append(beside if is_package else file)
    return sorted(found)


def import_failure(wanted: str, error: Exception) -> ImportError:
    """Return the error to raise after an import done for `wanted` has failed, with `error` as its cause."""
    hiding = shadowing_files()
    text = f"{wanted} cannot be imported: {error}"
    if hiding:
        text += (
            f". In the program's folder {', '.join(hiding)} {'hide' if len(hiding) > 1 else 'hides'} the module of that"
            " name which Yarrow or the standard library needs: rename it."
        )
    return ImportError(text)
