"""Schemas that a snapshot has of its sources, for a program that is built in order to go on from it.

Owner: the thread that builds the program. The types of a program follow from its sources, so the schema of the first
start is put in before anything is built upon it. A snapshot that cannot be read here is left to the cluster, which
says what is wrong, and compares schemas again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from yarrow.common.values.kept_schema import KEPT_SCHEMA, KeptSchema
from yarrow.datastream.connectors.base import Source
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.snapshot.errors import SnapshotError
from yarrow.runtime.snapshot.handles import OperatorState
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader
from yarrow.runtime.snapshot.value_serializers import restored_serializer

_log = logging.getLogger(__name__)


def with_kept_schema(source: Source[Any, Any], name: str, settings: Settings) -> Source[Any, Any]:
    """Return the source with the schema of the snapshot from which the job will begin, if that has one for it."""
    own, path = source.kept_schema(), settings.get(execution.SAVEPOINT_PATH)
    if own is None or path is None:
        return source
    try:
        # The id of the operator is not known yet, and the subject is.
        kept = {found.content: found for found in _kept(path) if found.stays(own)}
    except (OSError, FileSystemError, SnapshotError) as error:
        _log.info("source '%s': the schemas of %s cannot be read here: %s", name, path, error)
        return source
    if len(kept) != 1 or own.content in kept:
        return source
    (found,) = kept.values()
    _log.info("source '%s' reads by %s, as %s has it, and not by %s", name, found.shown, path, own.shown)
    return source.with_kept_schema(found)


def _kept(path: str) -> Iterator[KeptSchema]:
    opened = open_snapshot(path, verify=False)
    reader = SnapshotReader(opened.directory)
    for operator in opened.metadata.operators:
        yield from _of_operator(operator, reader)


def _of_operator(operator: OperatorState, reader: SnapshotReader) -> Iterator[KeptSchema]:
    for subtask in operator.subtasks.values():
        for handle in subtask.operator:
            for state in handle.states:
                if state.name != KEPT_SCHEMA or not state.elements:
                    continue
                data = reader.read(handle.handle, f"operator '{operator.name}'")
                serializer = restored_serializer(state.value, None, operator.name, KEPT_SCHEMA)
                for offset, length in state.elements:
                    yield KeptSchema(*serializer.load_value(data[offset : offset + length]))
