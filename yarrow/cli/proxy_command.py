"""`yarrow proxy`: REST behind a token for clients that send none (a browser, Flink's own tools).

Owner: the main thread, until Ctrl-C. The token stays in this process.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType

from yarrow.cli.targets import means_cluster
from yarrow.client.rest.masters import masters_rest_client
from yarrow.client.rest.relay import Relay
from yarrow.client.yarn.applications import application_of, rest_of
from yarrow.runtime.config.settings import Settings


def run_proxy(config: Settings, port: int) -> None:
    """Relays until Ctrl-C or SIGTERM."""
    if means_cluster(config):
        name, rest = "the cluster", masters_rest_client(config)
    else:
        application = application_of(config)
        name, rest = application.application_id, rest_of(config, application)
    rest.get("/config")
    with Relay(rest, port) as relay:
        print(
            f"{name} answers at {relay.address} as long as this command runs (Ctrl-C ends it).",
            flush=True,
        )
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            relay.serve()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
