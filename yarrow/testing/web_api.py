"""The web API of a control plane that runs in this process: embedded, or the master of a standalone cluster.

Owner: the control plane's loop. The web framework is loaded when the first client connects; the port is taken
at once, so that it can be told, and one in use is an error before a job starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from yarrow.runtime.config.options import rest
from yarrow.runtime.config.settings import Settings

if TYPE_CHECKING:
    from yarrow.am.cluster_entrypoint import ControlPlane
    from yarrow.am.rest.server import RestServer

LOOPBACK = "127.0.0.1"


async def start_web_api(
    plane: ControlPlane,
    config: Settings,
    *,
    host: str = LOOPBACK,
    any_port: bool = True,
    lazily: bool = True,
    log_directory: Path | None = None,
) -> RestServer:
    """Serves on rest.port (rest.bind-port) where set, else on the first free port from 8081.

    `host` counts where rest.bind-address is not set; without `any_port` 8081 alone will do. Raises
    RestServerError.
    """
    from yarrow.am.rest.server import RestServer
    from yarrow.am.rest.services import RestServices
    from yarrow.runtime.rpc.gateway_type import TASK_EXECUTOR

    services = RestServices(
        dispatcher=plane.dispatcher_gateway(),
        resource_manager=plane.resource_manager_gateway(),
        connect_task_executor=lambda address: plane.rpc.connect(address, TASK_EXECUTOR),
        settings=config,
        store_blob=plane.store_blob,
        log_directory=log_directory,
    )
    server = RestServer(services)
    await server.start(config.get(rest.BIND_ADDRESS) or host, _ports(config, any_port), lazily=lazily)
    return server


def _ports(config: Settings, any_port: bool) -> Iterable[int]:
    from yarrow.am.rest.server import free_ports

    if any_port and not config.is_set(rest.BIND_PORT):
        return free_ports(None)
    return [port for first, last in config.get(rest.BIND_PORT).intervals for port in range(first, last + 1)]
