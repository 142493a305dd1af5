"""DataPorts: the TCP ports on which workers of a TaskExecutor listen for data, and the ports that peers use.

Owner: none (frozen values, pure checks); only `listen` touches the network. taskmanager.data.bind-port names
the ports to listen on, taskmanager.bind-host the address. taskmanager.data.port names the ports for peers,
which differ if ports are forwarded.
"""

from __future__ import annotations

import socket

import msgspec

from yarrow.common.values.value_types import PortRange
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.options import taskmanager
from yarrow.runtime.config.settings import ReadableConfig

_BACKLOG = 256


class NoFreeDataPortError(YarrowError):
    """Every port that a worker may listen on is in use."""


class DataPorts(msgspec.Struct, frozen=True):
    """Ports in order; a worker takes the first free one."""

    bound: PortRange
    #: One for each of `bound`, unless it is any port: peers then get the port that the worker listens on.
    told: PortRange
    #: The local address to listen on; "" = the one that peers use.
    bind_host: str = ""

    @staticmethod
    def of(config: ReadableConfig) -> DataPorts:
        """Reads the configuration."""
        told, bound = config.get(taskmanager.DATA_PORT), config.get(taskmanager.DATA_BIND_PORT)
        host = config.get(taskmanager.BIND_HOST) or ""
        return DataPorts(told, PortRange.of(0), host) if bound is None else DataPorts(bound, told, host)

    def listen(self, told_host: str) -> tuple[socket.socket, int]:
        """A listening socket, and the port that peers use with `told_host`. Raises NoFreeDataPortError."""
        told = list(self.told)
        host = self.bind_host or told_host
        for index, port in enumerate(self.bound):
            try:
                server = socket.create_server((host, port), backlog=_BACKLOG)
            except OSError:
                if self.bound.is_any:
                    raise
                continue
            return server, server.getsockname()[1] if self.told.is_any else told[index]
        raise NoFreeDataPortError(
            f"no port of {self.bound} is free on {host} for data between workers. Each slot of each"
            f" TaskExecutor of a host needs a port: widen {taskmanager.DATA_BIND_PORT.key} or"
            f" {taskmanager.DATA_PORT.key}"
        )
