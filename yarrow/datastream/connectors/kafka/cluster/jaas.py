"""Texts of JAAS, in which Java's clients keep user, password and keytab: a login module and its options.

Owner: none (pure functions). A text is a secret as a whole. Source: "JAAS Login Configuration File" of Java's
documentation, "Security" of Kafka's.
"""

from __future__ import annotations

import re
from typing import Final

#: An option: its name and its value in double quotes, in single quotes or in none.
_OPTION: Final = re.compile(
    r"""([A-Za-z]\w*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_SECRETS: Final = frozenset({"password", "clientSecret"})


def jaas_options(text: str) -> dict[str, str]:
    """The options of a login module, with their values unquoted as Java's parser does it."""
    return {
        name: bare or re.sub(r"\\(.)", r"\1", double or single)
        for name, double, single, bare in _OPTION.findall(text)
    }


def jaas_secrets(text: str) -> set[str]:
    """The values of options that must not be shown."""
    return {value for name, value in jaas_options(text).items() if name in _SECRETS}
