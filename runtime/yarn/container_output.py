"""The last output of a container's process, read from the web server of its node.

Owner: any thread; a call blocks for one HTTP request with a short timeout. Only reads. YARN keeps the logs of a
container on its node while the application runs; where the node does not show them, nothing is said.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from yarrow.runtime.common.http_answers import body_of
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.failures import without_stack
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.layout import TASK_EXECUTOR_SERVICE

_TIMEOUT: Final = 2.0
#: The bytes read of the file's end.
_BYTES: Final = 8192
#: The node puts a head and a foot around the text.
_CONTENT: Final = re.compile(r"^LogContents:\n(?P<text>.*?)\n?^End of LogType:", re.DOTALL | re.MULTILINE)
_LINES: Final = 3
_LENGTH: Final = 600


def last_lines(text: str) -> str:
    """The last lines with content, as one: stacks are left out, and long text is cut at its beginning."""
    lines = [" ".join(line.split()) for line in without_stack(text)][-_LINES:]
    said = " / ".join(lines)
    return said if len(said) <= _LENGTH else f"... {said[-_LENGTH:]}"


class ContainerOutput:
    """A reader of the output of a service's containers, whose script writes one file."""

    def __init__(
        self,
        config: Settings,
        environment: Mapping[str, str] | None = None,
        service: str = TASK_EXECUTOR_SERVICE,
    ) -> None:
        """Reads Hadoop's configuration of this container when it is asked first.

        `service`: Skein's name of the service whose containers these are, and of the file of their output.
        """
        self._service = service
        self._config = config
        self._environment = os.environ if environment is None else environment
        self._secure: bool | None = None

    def __call__(self, node: str, container_id: str) -> str:
        """The last lines, "" = it wrote none; `node` is `host:port` of the node's web server. Raises YarnError."""
        if self._secure is None:
            hadoop = HadoopConfiguration.load(self._config, self._environment)
            self._secure = hadoop.get("yarn.http.policy", "HTTP_ONLY") == "HTTPS_ONLY"
        file = f"{self._service}.log"
        path = f"/ws/v1/node/containerlogs/{quote(container_id, safe='')}/{file}?size=-{_BYTES}"
        try:
            with contextlib.closing(self._connection(node)) as connection:
                connection.request("GET", path, headers={"Accept": "text/plain"})
                response = connection.getresponse()
                data = body_of(response, 4 * _BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise YarnError(f"{node} does not show {file}: {error or type(error).__name__}") from None
        if response.status != http.HTTPStatus.OK:
            raise YarnError(f"{node} does not show {file}: status {response.status}")
        found = _CONTENT.search(data.decode(errors="replace"))
        return last_lines(found["text"]) if found is not None else ""

    def _connection(self, node: str) -> http.client.HTTPConnection:
        if not node:
            raise ValueError("YARN has not reported the address of the node's web server")
        if not self._secure:
            return http.client.HTTPConnection(node, timeout=_TIMEOUT)
        return http.client.HTTPSConnection(node, timeout=_TIMEOUT, context=ssl.create_default_context())
