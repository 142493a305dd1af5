"""The keys of a configuration that name secrets: one table for programs, engine, logs, errors and dumps.

Owner: any thread; pure functions. A value whose key is secret is shown as `REDACTED`. The key alone decides;
of a value only the inner keys of a map are looked at.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["REDACTED", "SECRET_NAMES", "is_secret_key", "names_secret", "shown_value"]

#: The text in place of a secret value, as in Flink.
REDACTED: Final = "******"

#: Parts of names, without regard to case. Flink hides keys that hold `password`, `secret`, `fs.azure.account.key`,
#: `apikey`, `api-key`, `auth-params`, `service-key`, `token`, `basic-auth`, `jaas.config` and `http-headers`.
#: The others are names that clouds, databases and libraries use. Options about delegation tokens that hold no
#: token stay visible. A regular expression that Java reads as Python does.
SECRET_NAMES: Final = (
    r"secret|passw(or)?d|passphrase|(?<![a-z])pwd(?![a-z])|token(?!s\.enabled|s\.renewal|\.services)|credential"
    r"|api[-_.]?key|access[-_.]?key|account[-_.]?key|private[-_.]?key|service[-_.]?key|auth-params|jaas\.config|sasl\.jaas"
    r"|basic-auth|http-headers"
)
_SECRET: Final = re.compile(SECRET_NAMES, re.IGNORECASE)


def is_secret_key(key: str) -> bool:
    """Return whether a key's name says that its value must not be shown: passwords, secrets, tokens, keys."""
    return _SECRET.search(key) is not None


def names_secret(text: str) -> bool:
    """Return whether a text that holds names and values, as a map does, may hold a value that must not be shown."""
    return _SECRET.search(text) is not None


def shown_value(key: str, value: object) -> str:
    """Return the value of a key for a message: its repr, or `REDACTED` where the key or an inner key is secret."""
    text = repr(value)
    return REDACTED if is_secret_key(key) or names_secret(text) else text
