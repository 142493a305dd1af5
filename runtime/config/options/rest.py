"""Options of the REST server and of its clients.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.value_types import (
    BOOLEAN,
    COUNT,
    DURATION,
    PORT,
    PORT_RANGE,
    STRING,
    memory_size,
)
from yarrow.runtime.config.values.option import option, optional

ADDRESS: Final = optional(
    "rest.address",
    STRING,
    "The address under which clients reach the REST server.",
    unset="`jobmanager.rpc.address`",
    fallback_keys=("jobmanager.rpc.address",),
)
BIND_ADDRESS: Final = optional(
    "rest.bind-address",
    STRING,
    "The local address the REST server listens on.",
    unset="all addresses; the embedded cluster: localhost",
    deprecated_keys=("web.address", "jobmanager.web.address"),
)
REST_PORT: Final = option(
    "rest.port",
    PORT,
    "8081",
    "The port clients connect to, and the server's where `rest.bind-port` is not"
    " set. An embedded cluster for which"
    " it is not set takes the first free port from 8081.",
    fallback_keys=("web.port", "jobmanager.web.port"),
)
BIND_PORT: Final = option(
    "rest.bind-port",
    PORT_RANGE,
    "8081",
    "The port, or the range to choose from, of the REST server.",
    fallback_keys=("rest.port", "web.port", "jobmanager.web.port"),
)
AWAIT_LEADER_TIMEOUT: Final = option(
    "rest.await-leader-timeout",
    DURATION,
    "30 s",
    "How long a client waits for the address of a leader.",
)
CONNECTION_TIMEOUT: Final = option(
    "rest.connection-timeout",
    DURATION,
    "15 s",
    "How long a client tries to connect.",
)
IDLENESS_TIMEOUT: Final = option(
    "rest.idleness-timeout",
    DURATION,
    "5 min",
    "How long an idle connection stays open.",
)
RETRY_MAX_ATTEMPTS: Final = option(
    "rest.retry.max-attempts",
    COUNT,
    "20",
    "How often a client repeats a request that failed on the way.",
)
RETRY_DELAY: Final = option(
    "rest.retry.delay", DURATION, "3 s", "How long a client waits between two attempts."
)
CLIENT_MAX_CONTENT_LENGTH: Final = option(
    "rest.client.max-content-length",
    memory_size("100 mb"),
    "104857600",
    "The longest answer a client accepts.",
)
SERVER_MAX_CONTENT_LENGTH: Final = option(
    "rest.server.max-content-length",
    memory_size("100 mb"),
    "104857600",
    "The longest request the server accepts; programs that are uploaded count too.",
)
ASYNC_STORE_DURATION: Final = option(
    "rest.async.store-duration",
    DURATION,
    "5 min",
    "How long the result of an asynchronous operation can be asked for.",
)
FLAMEGRAPH_ENABLED: Final = option(
    "rest.flamegraph.enabled",
    BOOLEAN,
    "false",
    "Whether flame graphs of running tasks can be asked for.",
    no_effect="there are no flame graphs yet",
)
