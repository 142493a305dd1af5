"""The proof of the sender of rows of execute_and_collect.

Workers seal rows that the client must not believe otherwise, by the key that is derived here.

Owner: none (frozen values). The key is derived from the application's data secret, which no client and no
REST server sends anywhere. The key only allows sealing rows, and nothing else.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import Final

_PURPOSE: Final = b"yarrow: rows of execute_and_collect"


def result_key(data_secret: bytes) -> bytes:
    """The key of an application's sealed rows, for its workers and its clients."""
    return hmac.digest(data_secret, _PURPOSE, "sha256")


@dataclass(frozen=True, slots=True)
class ResultProof:
    """The facts that a client knows of the server that answers it."""

    #: The server is this very process, or has shown a checked certificate: it may run code here.
    server_is_known: bool = False
    #: `result_key` of the cluster; b"" = this client does not have it.
    key: bytes = field(default=b"", repr=False)


#: The proof of a client whose cluster is its own process.
SAME_PROCESS: Final = ResultProof(server_is_known=True)
