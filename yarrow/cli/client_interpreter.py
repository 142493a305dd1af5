"""`-pyclientexec`: the command goes on in another interpreter, with the same arguments.

Owner: the main thread, before anything of the program is loaded. An archive with the interpreter is unpacked
into a temporary folder, which is removed with the process. The folder of a killed process is removed by the
next one that unpacks.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.client_folder import ClientFolder, remove_abandoned, remove_inherited
from yarrow.runtime.interpreters.client_interpreter import client_interpreter
from yarrow.runtime.interpreters.environment import environment_for

_FOLDER = "yarrow-interpreter-"
#: Environment variable that marks the continuing process, with the folder of its unpacked interpreter.
_GOES_ON = "YARROW_GOES_ON"


def go_on_in_client_interpreter(config: Settings) -> None:
    """Does not return if python.client.executable names another interpreter than this one.

    Raises ConfigError for an interpreter in which the command cannot continue.
    """
    if (inherited := os.environ.pop(_GOES_ON, None)) is not None:
        if inherited:
            atexit.register(remove_inherited, Path(inherited))
        return
    folders: list[ClientFolder] = []

    def folder() -> Path:
        remove_abandoned(prefix=_FOLDER)
        folders.append(ClientFolder(prefix=_FOLDER))
        return Path(folders[0].path)

    try:
        path = client_interpreter(config, folder)
        if path != sys.executable:
            for unpacked in folders:
                unpacked.hand_on()
            variables = environment_for(path, os.environ)
            variables[_GOES_ON] = folders[0].path if folders else ""
            os.execve(path, [path, "-P", "-m", "yarrow.cli.main", *sys.argv[1:]], variables)
    finally:
        for unpacked in folders:
            unpacked.remove()
