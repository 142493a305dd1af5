"""BackendBuilder: chooses the state backend of an operator's subtask by `state.backend.type`.

Owner: the task thread that sets up operators. RocksDB is imported only for a job that names it: it costs
memory, and must not be loaded in a process that forks workers.
"""

from __future__ import annotations

import importlib

from yarrow.container.state.backend import KeyedBackendContext, KeyedStateBackend, StateBackendFactory
from yarrow.container.state.errors import StateBackendError
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.runtime.config.options import checkpointing
from yarrow.runtime.config.storage_names import HEAP_BACKENDS, ROCKSDB_BACKEND
from yarrow.runtime.snapshot.key_types import check_keys

#: Backends that are loaded only when a job names them, in the same form as custom backends.
_NAMED = {ROCKSDB_BACKEND: "yarrow.container.state.rocksdb.backend:rocksdb_state_backend"}


def keyed_state_backend(context: KeyedBackendContext) -> KeyedStateBackend:
    """The restored backend of one operator's subtask.

    Raises SavepointMismatchError if the keys have another type than the program's, or other places of their columns.
    Raises StateBackendError for a backend that does not exist or cannot be loaded.
    """
    check_keys(context.operator_name, context.restored, context.key_type, context.key_columns)
    name = context.settings.get(checkpointing.STATE_BACKEND).strip()
    backend = _factory(name)(context)
    if not isinstance(backend, KeyedStateBackend):
        raise StateBackendError(
            f"state.backend.type {name!r} gives a {type(backend).__name__}; it must name a function that takes a "
            "KeyedBackendContext and gives a KeyedStateBackend (yarrow.container.state.backend)"
        )
    if not context.settings.get(checkpointing.STATE_DEBUG):
        return backend
    # Imported late: jobs in production do without it.
    from yarrow.container.state.debug_backend import DebugBackend

    return DebugBackend(backend, context)


def _factory(name: str) -> StateBackendFactory:
    if name.lower() in HEAP_BACKENDS:
        return HeapKeyedStateBackend
    module, separator, attribute = _NAMED.get(name.lower(), name).partition(":")
    if not separator:
        raise StateBackendError(
            f"state.backend.type {name!r} is no state backend; use hashmap, rocksdb, or module:name of a function "
            "that makes your own"
        )
    try:
        factory: StateBackendFactory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise StateBackendError(
            f"state.backend.type {name!r} cannot be loaded: {error}; ship the module with add_python_file (-pyfs), or "
            "install it in the environment of the workers"
        ) from error
    return factory
