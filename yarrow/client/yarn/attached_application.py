"""How a client finds an application that runs: where its REST is now, also while one master follows another.

Owner: the client's thread; blocking. It starts and ends nothing on YARN; of an application that has ended it forgets
what is kept here.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from yarrow.client.yarn.application_files import ApplicationFiles
from yarrow.client.yarn.yarn_client import YarnClient
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.yarn.application import ClientSecrets
from yarrow.runtime.yarn.failures import summary
from yarrow.runtime.yarn.gateways import ApplicationReport, YarnError, YarnState
from yarrow.runtime.yarn.layout import KV_REST_ADDRESS
from yarrow.runtime.yarn.resource_manager_web import YarnApplicationStatus

#: For a master that is between two attempts; and between two looks at it.
_PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.5
#: For one question to the master.
_VALUE_SECONDS: Final = 5.0
#: In which a REST server must take a connection.
_PROBE_SECONDS: Final = 2.0


class AttachedApplication:
    """Applications of one user, by what `files` keeps of them; `say` gets a sentence when one is waited for."""

    def __init__(
        self, client: YarnClient, files: ApplicationFiles, say: Callable[[str], None], clock: Clock
    ) -> None:
        self._client = client
        self._files = files
        self._say = say
        self._clock = clock

    def retrieve(self, application_id: str, secrets: ClientSecrets | None) -> tuple[ClientSecrets, str]:
        """Its secrets, and where its REST answers. Raises YarnError that says what has become of it."""
        pause, deadline = threading.Event(), self._clock.monotonic() + _PATIENCE_SECONDS
        said = False
        while True:
            status = self._client.status(application_id)
            known = self._of_one_that_runs(status.report, secrets)
            try:
                return known, self._present_address(known, status)
            except YarnError as error:
                if self._clock.monotonic() > deadline:
                    raise
                if not said:
                    self._say(f"{error} Its master is waited for, up to {_PATIENCE_SECONDS:g} s.")
                said = True
            pause.wait(_LOOK_SECONDS)

    def _of_one_that_runs(self, report: ApplicationReport, secrets: ClientSecrets | None) -> ClientSecrets:
        """The secrets; YarnError for an application that has ended, or is not this user's."""
        named = f"{report.application_id} ({report.name})"
        if report.state.has_ended:
            self._files.forget(report.application_id)
            said = f": {text}" if (text := summary(report.diagnostics)) else "."
            raise YarnError(f"{named} has ended: {report.state.value}, {report.final_status.value}{said}")
        if secrets is None:
            raise YarnError(
                f"{named} runs, but this user has no token for it in {self._files.folder}: use the machine and user"
                " that started it, or name the folder by yarn.properties-file.location."
            )
        return secrets

    def _present_address(self, secrets: ClientSecrets, status: YarnApplicationStatus) -> str:
        """Where REST was last, if somebody answers there; else where the master says it is, which is then kept.

        Raises YarnError while there is no master, or it does not answer.
        """
        application_id, state = secrets.application_id, status.report.state
        if state is not YarnState.RUNNING:
            raise YarnError(f"{application_id} ({secrets.name}) does not run yet: it is {state.value}.")
        if secrets.rest_address and _answers(secrets.rest_address):
            return secrets.rest_address
        if status.master_address:
            address = self._client.value_at(
                status.master_address, application_id, KV_REST_ADDRESS, _VALUE_SECONDS
            )
        else:
            address = self._client.value(application_id, KV_REST_ADDRESS, _VALUE_SECONDS)
        if not _answers(address):
            # Of a master that has just been lost.
            raise YarnError(f"REST of {application_id} ({secrets.name}) does not answer at {address}.")
        self._files.write_secrets(msgspec.structs.replace(secrets, rest_address=address))
        return address


def _answers(address: str) -> bool:
    url = urlsplit(address)
    try:
        socket.create_connection((url.hostname or "", url.port or 80), _PROBE_SECONDS).close()
    except OSError:
        return False
    return True
