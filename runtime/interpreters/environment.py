"""The environment variables of a process of some interpreter.

Owner: none (pure functions). A process uses this module before it has imported anything of weight: imports only
what the interpreter has loaded anyway.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

#: The environment variable with the workers' interpreter: sys.executable does not show a wrapper script.
INTERPRETER_VARIABLE = "YARROW_PYTHON_EXECUTABLE"
#: The variable that the loader reads first.
_LIBRARY_PATH = "LD_LIBRARY_PATH"


def environment_for(executable: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a process of `executable`.

    Otherwise it would load libraries of this process's own interpreter.
    """
    if executable == sys.executable or _LIBRARY_PATH not in environment:
        return dict(environment)
    own = os.path.realpath(sys.base_prefix) + os.sep
    others = [
        folder
        for folder in environment[_LIBRARY_PATH].split(os.pathsep)
        if folder and not (os.path.realpath(folder) + os.sep).startswith(own)
    ]
    kept = {name: value for name, value in environment.items() if name != _LIBRARY_PATH}
    return {**kept, _LIBRARY_PATH: os.pathsep.join(others)} if others else kept
