"""How the value of `execution.checkpointing.storage` is told from the names of the storages that there are.

Owner: any thread; pure.
"""

from __future__ import annotations


def is_custom(name: str) -> bool:
    """Whether it names a storage of the user's own, as `module:name`."""
    module, separator, attribute = name.partition(":")
    return bool(separator) and bool(module.strip()) and attribute.strip().isidentifier()
