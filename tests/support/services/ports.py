"""The ports of one service: free ones below the range that the system gives to outgoing connections.

Owner: the caller's thread. A daemon that is killed must find its port free when it comes back, which a port
out of the ephemeral range does not promise. Ports are chosen once and kept in the service's state.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.services.errors import ServiceError

#: The ports of a service by `daemon.use`.
Ports = Mapping[str, int]

_LOWEST = 10_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: The names of the ports that this process has taken.
_claims: list[socket.socket] = []


def choose(seed: str, names: Sequence[str]) -> dict[str, int]:
    """A free port for every name; two clusters with different seeds begin to look at different places."""
    free = free_ports(seed)
    return {name: next(free) for name in names}


def free_ports(seed: str) -> Iterator[int]:
    """Ports on which nobody listens, none of them twice, and none that an outgoing connection may take.

    They are this process's until it ends: others that look for ports pass over them, though nobody listens yet.
    """
    highest = _lowest_ephemeral() - 1
    size = highest - _LOWEST
    first = zlib.crc32(seed.encode()) % size
    for step in range(size):
        if is_free(port := _LOWEST + (first + step) % size) and _claim(port):
            yield port
    raise ServiceError("no free ports are left below the system's range for outgoing connections")


def _claim(port: int) -> bool:
    """Takes a port for this process; False if a process, or this one before, has taken it."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        # A name without a file, which is free again when its process has ended.
        claim.bind(f"\0yarrow-test-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def is_free(port: int) -> bool:
    """Whether a server could listen on the port, whatever its address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def of_daemon(ports: Ports, daemon: str) -> dict[str, int]:
    """The ports of one daemon by their use."""
    return {name.partition(".")[2]: port for name, port in ports.items() if name.startswith(f"{daemon}.")}


def _lowest_ephemeral() -> int:
    try:
        lowest = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return lowest if lowest > _LOWEST + 1000 else 32_768
