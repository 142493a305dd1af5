"""Names of state backends, and how to tell a user's own storage or backend from the built-in ones.

Owner: any thread; pure.
"""

from __future__ import annotations

from typing import Final

#: Values of `state.backend.type` for the heap; programs used the later ones together with a checkpoint
#: storage.
HEAP_BACKENDS: Final = ("hashmap", "filesystem", "jobmanager", "memory")
ROCKSDB_BACKEND: Final = "rocksdb"
BACKENDS: Final = (*HEAP_BACKENDS, ROCKSDB_BACKEND)


def is_custom(name: str) -> bool:
    """Whether it names a storage of the user's own, as `module:name`."""
    module, separator, attribute = name.partition(":")
    return bool(separator) and bool(module.strip()) and attribute.strip().isidentifier()
