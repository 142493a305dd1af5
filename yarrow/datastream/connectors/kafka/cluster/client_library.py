"""Whether Kafka's client libraries are there, and what they can do, told without an import of them.

Owner: the client, while it builds the program. Must not import the client libraries: a process of its own does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Final

from yarrow.datastream.connectors.kafka.cluster.security_settings import uses_kerberos
from yarrow.runtime.common.errors import InvalidProgramError

#: Ends with status 0 if librdkafka was built with Cyrus SASL, which speaks Kerberos.
_HAS_KERBEROS: Final = (
    "import confluent_kafka as client; client.Producer({'builtin.features': 'sasl_gssapi', 'log_level': 0})"
)
_ANSWER_SECONDS: Final = 60.0


def require_client_library(owner: str) -> None:
    """Raise InvalidProgramError with the command that installs Kafka's client, if it is not there."""
    if find_spec("confluent_kafka") is None:
        raise InvalidProgramError(
            f"{owner} needs Kafka's client library. Run: pip install 'yarrow[kafka]'. No jar is needed"
        )


def require_mechanism(owner: str, settings: Mapping[str, str], *, commits: bool) -> None:
    """Raise InvalidProgramError if the client library cannot log in as `settings` say.

    `commits`: transactions are ended by the protocol library, which needs a library of its own for Kerberos.
    """
    if not uses_kerberos(settings):
        return
    if not _client_has_kerberos():
        raise InvalidProgramError(
            f"{owner}: sasl.mechanism is GSSAPI (Kerberos), and the installed confluent-kafka was built without it, as"
            " all of its wheels are. Install librdkafka with Cyrus SASL (apt install librdkafka-dev"
            " libsasl2-modules-gssapi-mit) and run: pip install --no-binary confluent-kafka confluent-kafka. Or log in"
            " by SCRAM-SHA-512 or OAUTHBEARER"
        )
    if commits and find_spec("gssapi") is None:
        raise InvalidProgramError(
            f"{owner}: exactly-once with sasl.mechanism GSSAPI needs one more library. Run: pip install gssapi"
        )


@cache
def _client_has_kerberos() -> bool:
    command = [sys.executable, "-c", _HAS_KERBEROS]
    done = subprocess.run(command, capture_output=True, check=False, timeout=_ANSWER_SECONDS)
    return done.returncode == 0
