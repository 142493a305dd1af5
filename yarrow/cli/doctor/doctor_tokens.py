"""The doctor's findings about applications on a secured cluster: when each loses access to HDFS.

Owner: the main thread; blocking, each application is asked once with a short limit. An ended or silent
application is no finding: commands that name it say so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

from yarrow.cli.doctor.doctor_findings import Finding, warned
from yarrow.client.rest.rest_client import RestClient, RetryPolicy
from yarrow.client.yarn.application_files import ApplicationFiles
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import ClientSecrets
from yarrow.runtime.yarn.delegation_tokens import time_left

_SECONDS = 5.0


def applications(config: Settings, clock: Clock | None = None) -> Iterator[Finding]:
    """A warning for each of this user's applications that would outlive its delegation tokens, with the time left."""
    now = (clock or SystemClock()).epoch_ms()
    files = ApplicationFiles.of(config)
    for application_id in files.known_applications():
        try:
            secrets = files.read_secrets(application_id)
            ends = _tokens_end(config, secrets) if secrets is not None else 0
        except (YarrowError, OSError, ValueError):
            continue
        if secrets is not None and ends:
            whose = f"{application_id} ({secrets.name})"
            yield warned("tokens", f"the delegation token of {whose} {time_left(ends, now)}")


def _tokens_end(config: Settings, application: ClientSecrets) -> int:
    """Epoch milliseconds from its master; 0 = it has no token that ends."""
    address = urlsplit(application.rest_address)
    if address.hostname is None or address.port is None:
        return 0
    once = RetryPolicy(max_attempts=0)
    rest = RestClient.of(config, address.hostname, address.port, token=application.rest_token, retry=once)
    overview = json.loads(rest.request("GET", "/overview", timeout=_SECONDS))
    return int(overview.get("yarn-tokens-end", 0))
