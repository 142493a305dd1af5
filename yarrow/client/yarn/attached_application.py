"""AttachedApplication: finds the present REST address of a running application, also between two masters.

Owner: the client's thread; blocking. It starts and ends nothing on YARN; for an ended application it removes
the client's files.
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

#: Seconds to wait for a master between two attempts, and between two looks at it.
_PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.5
#: Seconds for one question to the master.
_VALUE_SECONDS: Final = 5.0
#: Seconds in which a REST server must accept a connection.
_PROBE_SECONDS: Final = 2.0


class AttachedApplication:
    """Finds applications of one user, by its `files`; `say` gets a sentence when one is awaited."""

    def __init__(
        self, client: YarnClient, files: ApplicationFiles, say: Callable[[str], None], clock: Clock
    ) -> None:
        self._client = client
        self._files = files
        self._say = say
        self._clock = clock

    def retrieve(self, application_id: str, secrets: ClientSecrets | None) -> tuple[ClientSecrets, str]:
        """The application's secrets and REST address. Raises YarnError with its fate."""
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
                    self._say(f"{error} This command waits for the master, up to {_PATIENCE_SECONDS:g} s.")
                said = True
            pause.wait(_LOOK_SECONDS)

    def _of_one_that_runs(self, report: ApplicationReport, secrets: ClientSecrets | None) -> ClientSecrets:
        """The secrets. Raises YarnError for an ended application, or another user's."""
        named = f"{report.application_id} ({report.name})"
        if report.state.has_ended:
            self._files.forget(report.application_id)
            said = f": {text}" if (text := summary(report.diagnostics)) else "."
            raise YarnError(f"{named} has ended: {report.state.value}, {report.final_status.value}{said}")
        if secrets is None:
            raise YarnError(
                f"{named} runs, but this user has no token for it in {self._files.folder}. Use the machine and"
                " user that started it, or name the folder by yarn.properties-file.location."
            )
        return secrets

    def _present_address(self, secrets: ClientSecrets, status: YarnApplicationStatus) -> str:
        """The last REST address if a server answers there; else the master's published one, which is then kept.

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
            # Published by a master that has just been lost.
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
