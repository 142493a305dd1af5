"""The interpreter of the workers: python.executable, resolved and tried before anything is started with it.

Owner: any thread; blocking, for as long as another interpreter needs to start. Nothing runs if the option is
not set or names the running interpreter. One in an archive of the job is missing until that is unpacked: a
TaskExecutor then tries it, for that job alone.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping

import yarrow
from yarrow.runtime.config.options import python
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError, InvalidOptionValue
from yarrow.runtime.config.values.option import EngineOption
from yarrow.runtime.interpreters.environment import INTERPRETER_VARIABLE, environment_for

_PROBE = (
    "import sys; print('%d.%d' % sys.version_info[:2], flush=True);"
    " import yarrow.container.worker.worker; print(yarrow.__version__, flush=True)"
)
#: Seconds that an interpreter may take to start on a busy machine.
_PROBE_LIMIT = 60.0
#: Why the named program cannot be started.
NO_SUCH_PROGRAM = "there is no such program, or it may not be executed"


def worker_interpreter(config: Settings) -> str:
    """The absolute path of the interpreter of the workers.

    It is this process's own if no other is named, or if an archive of the job contains it.

    Raises InvalidOptionValue if it does not exist, has another minor version, or lacks Yarrow.
    """
    value = config.get(python.EXECUTABLE)
    if not config.is_set(python.EXECUTABLE) or value == python.EXECUTABLE.default:
        return sys.executable
    if archive_of_interpreter(config):
        return sys.executable
    found = shutil.which(value)
    if found is None:
        looked = "" if os.sep in value else f"; looked for on the PATH {os.environ.get('PATH', os.defpath)}"
        raise _refused(config, f"{NO_SUCH_PROGRAM}{looked}")
    path = os.path.abspath(found)
    if is_this_interpreter(path):
        return sys.executable
    if reason := unfit(path, os.environ):
        raise _refused(config, reason)
    return path


def archive_of_interpreter(config: Settings, option: EngineOption[str] = python.EXECUTABLE) -> str:
    """The entry of python.archives that contains the option's path; "" = none does."""
    folders = {archive_folder(entry): entry for entry in config.get(python.ARCHIVES) or ()}
    return folders.get(folder_of(config.get(option), folders), "")


def of_task_executors(config: Settings, folders: Iterable[str]) -> Settings:
    """The configuration for TaskExecutors of a job whose archives are unpacked in these folders.

    An interpreter in one of them is the job's.
    """
    if not folder_of(config.get(python.EXECUTABLE), map(os.path.normpath, folders)):
        return config
    return config.overlay({python.EXECUTABLE.key: python.EXECUTABLE.default})


def archive_folder(entry: str) -> str:
    """The folder of an unpacked entry of python.archives in the working directory: its `#name`, or the file's name."""
    path, _, name = entry.partition("#")
    return os.path.normpath(name or os.path.basename(path.rstrip("/")))


def folder_of(executable: str, folders: Iterable[str]) -> str:
    """The one of the relative folders that contains the relative path; "" = none does."""
    path = os.path.normpath(executable)
    return next((folder for folder in folders if path.startswith(folder + os.sep)), "")


def is_this_interpreter(path: str) -> bool:
    """Whether `path` names the running interpreter: the same file in the same environment."""
    own = os.path.abspath(os.environ.get(INTERPRETER_VARIABLE, sys.executable))
    return os.path.realpath(path) == os.path.realpath(own) and os.path.dirname(path) == os.path.dirname(own)


def unfit(path: str, environment: Mapping[str, str]) -> str:
    """Why workers cannot run in the interpreter at `path`, which is started to find out; "" = they can.

    It must have this minor version, and this version of Yarrow.
    """
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        return NO_SUCH_PROGRAM
    import subprocess  # workers use the rest of this module and try no interpreter

    try:
        probe = subprocess.run(
            [path, "-c", _PROBE],
            # Files in the user's folder must not be found.
            cwd=os.path.dirname(path),
            env=environment_for(path, environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it cannot be run: {error}"
    version, _, engine = probe.stdout.strip().partition("\n")
    last = (probe.stderr.strip().splitlines() or ["no reason given"])[-1]
    if not version:
        return f"it is no Python: asked for its version it ended with status {probe.returncode} ({last})"
    if version != _own_version():
        return f"it is Python {version}, and functions do not travel between versions"
    if probe.returncode:
        return f"Yarrow cannot be imported in it ({last}); install it there"
    if engine != yarrow.__version__:
        return f"it has Yarrow {engine}, and this is Yarrow {yarrow.__version__}; install the same there"
    return ""


def _refused(config: Settings, reason: str) -> ConfigError:
    option = python.EXECUTABLE
    return refused_interpreter(option.key, config.get(option), reason, config.origin_of(option.key))


def refused_interpreter(
    key: str, value: str, reason: str, origin: str = "", example: str = sys.executable
) -> ConfigError:
    """The error for a key that names this interpreter."""
    expected = f"a Python {_own_version()} in which Yarrow {yarrow.__version__} is installed"
    return InvalidOptionValue(key, repr(value), reason, expected, example, origin)


def _own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
