"""The form in which a server keeps a bearer token of REST.

Owner: none (pure). The form must not allow to make the token.
"""

from __future__ import annotations

import hashlib


def token_hash(token: str) -> bytes:
    """The stored form of a token: it recognises the token, and cannot replace it."""
    return hashlib.sha256(token.encode()).digest()
