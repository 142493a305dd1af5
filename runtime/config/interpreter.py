"""The interpreter of the workers: python.executable, resolved and tried before anything is started with it.

Owner: any thread; blocking, for as long as another interpreter needs to start. Nothing is run where the
option is not set or names the interpreter that runs already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from yarrow.runtime.config.errors import ConfigError, InvalidOptionValue
from yarrow.runtime.config.options import python
from yarrow.runtime.config.settings import Settings

_PROBE = "import sys; print('%d.%d' % sys.version_info[:2], flush=True); import yarrow.runtime"
#: In the environment of workers, what they were started with: sys.executable does not show a wrapper script.
INTERPRETER_VARIABLE = "YARROW_PYTHON_EXECUTABLE"
#: Seconds an interpreter may take to start on a busy machine.
_PROBE_LIMIT = 60.0


def worker_interpreter(config: Settings) -> str:
    """The absolute path of the interpreter of the workers; this process's own where nothing else is said.

    Raises InvalidOptionValue for one that is not there, is of another minor version, or lacks Yarrow.
    """
    value = config.get(python.EXECUTABLE)
    if not config.is_set(python.EXECUTABLE) or value == python.EXECUTABLE.default:
        return sys.executable
    found = shutil.which(value)
    if found is None:
        raise _refused(config, "there is no such program, or it may not be executed")
    path = os.path.abspath(found)
    if not is_this_interpreter(path):
        _try(config, path)
        return path
    return sys.executable


def is_this_interpreter(path: str) -> bool:
    """Whether `path` is another name of the interpreter that runs: the same file in the same environment."""
    own = os.path.abspath(os.environ.get(INTERPRETER_VARIABLE, sys.executable))
    return os.path.realpath(path) == os.path.realpath(own) and os.path.dirname(path) == os.path.dirname(own)


def _try(config: Settings, path: str) -> None:
    try:
        probe = subprocess.run(
            [path, "-c", _PROBE],
            # Whatever lies in the user's folder must not be what is found.
            cwd=os.path.dirname(path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refused(config, f"it cannot be run: {error}") from None
    version = probe.stdout.strip()
    if not version:
        raise _refused(
            config, f"it is no Python: asked for its version it ended with status {probe.returncode}"
        )
    if version != _own_version():
        raise _refused(config, f"it is Python {version}, and functions do not travel between versions")
    if probe.returncode:
        last = (probe.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise _refused(config, f"Yarrow cannot be imported in it ({last}); install it there")


def _refused(config: Settings, reason: str) -> ConfigError:
    option = python.EXECUTABLE
    return InvalidOptionValue(
        option.key,
        repr(config.get(option)),
        reason,
        f"a Python {_own_version()} in which Yarrow is installed",
        sys.executable,
        config.origin_of(option.key) or "",
    )


def _own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
