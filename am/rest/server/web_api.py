"""The web API of a control plane that runs in this process: embedded, or the master of a standalone cluster.

Owner: the control plane's loop. The web framework is loaded when the first client connects. The port is bound
at once, so that it is known, and a port in use is an error before a job starts.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from yarrow.runtime.config.options import rest, security, web
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.loopback import LOOPBACK

if TYPE_CHECKING:
    from yarrow.am.control_plane import ControlPlane
    from yarrow.am.rest.server.server import RestServer


async def start_web_api(
    plane: ControlPlane,
    config: Settings,
    *,
    host: str = LOOPBACK,
    any_port: bool = True,
    lazily: bool = True,
    log_directory: Path | None = None,
    token: str = "",
    temporary_directory: Path | None = None,
) -> RestServer:
    """Serves on rest.port (rest.bind-port) if set, else on the first free port from 8081.

    `host` counts where rest.bind-address is not set; without `any_port` 8081 alone will do. Where other hosts reach it,
    clients show the `token`; without one such a server does not start. Where web.tmpdir is not set, programs go into
    `temporary_directory`.
    Raises RestServerError, and ConfigError for keystores that will not do.
    """
    from yarrow.am.rest.server.server import RestServer
    from yarrow.am.rest.services import RestServices, RestSettings
    from yarrow.runtime.rpc.gateway_type import TASK_EXECUTOR

    services = RestServices(
        dispatcher=plane.dispatcher_gateway(),
        resource_manager=plane.resource_manager_gateway(),
        connect_task_executor=lambda address: plane.rpc.connect(address, TASK_EXECUTOR),
        settings=config,
        store_blob=plane.store_blob,
        log_directory=log_directory,
    )
    settings = replace(RestSettings.of(config), tls=_tls(config))
    if temporary_directory is not None and not config.is_set(web.TMP_DIR):
        settings = replace(settings, temporary_directory=temporary_directory)
    host = config.get(rest.BIND_ADDRESS) or host
    if token:
        from yarrow.runtime.security.rest_tokens import token_hash

        settings = replace(settings, token_hash=token_hash(token))
    server = RestServer(services, settings)
    await server.start(host, _ports(config, any_port), lazily=lazily)
    return server


def _tls(config: Settings) -> ssl.SSLContext | None:
    if not config.get(security.REST_ENABLED):
        return None
    from yarrow.runtime.security.keystores import rest_identity, rest_server_context

    identity = rest_identity(config)
    return None if identity is None else rest_server_context(identity, config)


def _ports(config: Settings, any_port: bool) -> Iterable[int]:
    from yarrow.am.rest.server.server import free_ports

    if any_port and not config.is_set(rest.BIND_PORT):
        return free_ports(None)
    return [port for first, last in config.get(rest.BIND_PORT).intervals for port in range(first, last + 1)]
