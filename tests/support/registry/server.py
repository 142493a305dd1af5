"""RegistryServer: a schema registry on loopback, Apicurio with the API of Confluent's registry.

Owner: the caller's thread; every method blocks. What runs is known from the folder alone, so that the guard of a test
process may stop a registry that the process has started. Its schemas live as long as it runs.
"""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.services import ports, processes, serving, state_file
from tests.support.services.daemon_status import is_alive
from tests.support.services.errors import ServiceError
from tests.support.services.folder_lock import locked
from tests.support.services.jars import unpacked_program
from tests.support.services.processes import ProcessRecord
from tests.support.services.system_packages import java_home

#: The archive that Maven fetches, 109 MB. Versions from 3.1 on need a Java of version 21.
ARTIFACT = "io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all"
_API = "/apis/ccompat/v7"
_LOOPBACK = "127.0.0.1"
_NAME, _PORT = "registry", "registry.http"
#: Seconds in which it serves, on a machine that is busy with other things; 4 to 6 s on one that is not.
_START_SECONDS = 120.0
_ANSWER_SECONDS = 2.0
#: Flags that make a small Java program start fast and stay lean.
_LEAN = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")


@dataclass
class RegistryState:
    """Everything that another process needs in order to use or stop the registry."""

    ports: dict[str, int]
    program: str
    java_home: str
    processes: dict[str, ProcessRecord] = field(default_factory=dict)


class RegistryServer:
    """One registry in a folder of its own."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(os.path.abspath(directory))

    @property
    def url(self) -> str:
        """The URL for clients."""
        return _url(self._known())

    def up(self) -> None:
        """Start the registry and wait until it serves. Raises NotReadyError after stopping it if it does not."""
        with locked(self.directory):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            chosen = ports.choose(str(self.directory), [_PORT])
            program = unpacked_program(ARTIFACT, "apicurio-registry")
            known = RegistryState(chosen, str(program), str(java_home()))
            known.processes[_NAME] = processes.start(
                self._command(known), self._log, {"PATH": os.environ["PATH"]}, self.directory
            )
            state_file.save(self._state, known)
            try:
                serving.wait_until_serving(
                    [_NAME],
                    _START_SECONDS,
                    lambda name: _what_is_missing(_url(known)),
                    lambda name: is_alive(known.processes, name),
                    lambda name: self._log,
                )
            except BaseException:
                processes.stop(known.processes.values(), 0.0)
                raise

    def down(self) -> None:
        """Stop exactly what was started, and remove the folder."""
        with locked(self.directory):
            known = state_file.load(self._state, RegistryState)
            if known is not None:
                processes.stop(known.processes.values(), 0.0)
                shutil.rmtree(self.directory)

    @property
    def _state(self) -> Path:
        return self.directory / "registry.json"

    @property
    def _log(self) -> Path:
        return self.directory / "registry.log"

    def _known(self) -> RegistryState:
        known = state_file.load(self._state, RegistryState)
        if known is None:
            raise ServiceError(f"no registry is in {self.directory}")
        return known

    @staticmethod
    def _command(known: RegistryState) -> list[str]:
        (runner,) = Path(known.program).glob("*-runner.jar")
        return [
            str(Path(known.java_home) / "bin" / "java"),
            *_LEAN,
            "-Djava.net.preferIPv4Stack=true",
            f"-Dquarkus.http.host={_LOOPBACK}",
            f"-Dquarkus.http.port={known.ports[_PORT]}",
            "-jar",
            str(runner),
        ]


def _url(known: RegistryState) -> str:
    return f"http://{_LOOPBACK}:{known.ports[_PORT]}{_API}"


def _what_is_missing(url: str) -> str | None:
    """Why the registry does not serve yet; None when it answers a question about its subjects."""
    try:
        urllib.request.urlopen(f"{url}/subjects", timeout=_ANSWER_SECONDS).close()
    except (OSError, urllib.error.URLError) as error:
        return f"it does not answer ({error})"
    return None
