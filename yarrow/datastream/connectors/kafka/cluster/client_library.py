"""Whether Kafka's client library is there, told without an import of it.

Owner: the client, while it builds the program. Must not import the client library.
"""

from __future__ import annotations

from importlib.util import find_spec

from yarrow.runtime.common.errors import InvalidProgramError


def require_client_library(owner: str) -> None:
    """Raise InvalidProgramError with the command that installs Kafka's client, if it is not there."""
    if find_spec("confluent_kafka") is None:
        raise InvalidProgramError(
            f"{owner} needs Kafka's client library. Run: pip install 'yarrow[kafka]'. No jar is needed"
        )
