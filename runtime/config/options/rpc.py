"""Options of messages between the components of the control plane.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.quantities import Duration
from yarrow.common.values.value_types import COUNT, duration, memory_size
from yarrow.runtime.config.values.option import MemorySize, option

MESSAGE_MAX_SIZE: Final = option(
    "rpc.message.max-size",
    memory_size("10 mb", MemorySize(1 << 16)),
    "10485760b",
    "The largest message between components; what is larger goes through the blob store.",
    fallback_keys=("pekko.framesize", "akka.framesize"),
)
ASK_TIMEOUT: Final = option(
    "rpc.ask.timeout",
    duration("ms", "10 s", Duration(1)),
    "10 s",
    "How long a call from one component to another may take.",
    fallback_keys=("pekko.ask.timeout", "akka.ask.timeout"),
)
CONNECT_TIMEOUT: Final = option(
    "rpc.connect.timeout",
    duration("ms", "20 s", Duration(1)),
    "20 s",
    "How long a component tries to connect to another.",
    fallback_keys=("pekko.tcp.timeout", "akka.tcp.timeout"),
)
HEARTBEAT_INTERVAL: Final = option(
    "heartbeat.interval",
    duration("ms", "10 s", Duration(1)),
    "10 s",
    "Time between two heartbeats.",
)
HEARTBEAT_TIMEOUT: Final = option(
    "heartbeat.timeout",
    duration("ms", "50 s", Duration(1)),
    "50 s",
    "Silence after which a peer is taken for dead; longer than `heartbeat.interval`.",
)
HEARTBEAT_RPC_FAILURE_THRESHOLD: Final = option(
    "heartbeat.rpc-failure-threshold",
    COUNT,
    "2",
    "Heartbeats that fail one after the other before a peer is taken for"
    " unreachable; 0: only the timeout counts.",
)
CLIENT_HEARTBEAT_INTERVAL: Final = option(
    "client.heartbeat.interval",
    duration("ms", "30 s"),
    "30000",
    "Time between two heartbeats of an attached client. The client sends them to its own session, and to "
    "a job that ends with it (`execution.shutdown-on-attached-exit`). A bare number counts in "
    "milliseconds.",
)
CLIENT_HEARTBEAT_TIMEOUT: Final = option(
    "client.heartbeat.timeout",
    duration("ms", "3 min"),
    "180000",
    "Silence of an attached client after which its session ends, or its job is cancelled. The master "
    "counts the silence from its own start on. A bare number counts in milliseconds.",
)
