"""Schemas that a snapshot has of its sources, for a program that is built in order to go on from it.

Owner: the thread that builds the program. The types of a program follow from its sources, so the schemas of the first
start are put in before anything is built upon them. The id of a source's operator tells which ones they are, and the
program gives it behind `from_source`. Until then name and subject tell. A snapshot that cannot be read here is left to
the cluster, which says what is wrong, and compares schemas again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yarrow.common.values.kept_schema import KEPT_SCHEMA, KeptSchema, schemas_for, schemas_of
from yarrow.datastream.connectors.base import Source
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.snapshot.errors import SnapshotError
from yarrow.runtime.snapshot.handles import OperatorState
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader
from yarrow.runtime.snapshot.value_serializers import restored_serializer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredSchemas:
    """The schemas of one source in a snapshot."""

    operator_id: OperatorID
    name: str
    by_place: Mapping[str, KeptSchema]


def read_schemas(path: str, name: str) -> Sequence[StoredSchemas]:
    """Return the schemas of a snapshot; none if it cannot be read here.

    `name`: of the source that the log speaks of.
    """
    try:
        return list(_stored(path))
    except (OSError, FileSystemError, SnapshotError) as error:
        _log.info("source '%s': the schemas of %s cannot be read here: %s", name, path, error)
        return ()


def schemas_of_operator(
    own: Mapping[str, KeptSchema], operator_id: OperatorID, stored: Sequence[StoredSchemas]
) -> dict[str, KeptSchema]:
    """Return the schemas that the source of this id goes on with, at the places where they are not its `own`."""
    of_operator = next((found.by_place for found in stored if found.operator_id == operator_id), {})
    return _other_than(own, of_operator)


def schemas_by_name(
    own: Mapping[str, KeptSchema], name: str, stored: Sequence[StoredSchemas]
) -> dict[str, KeptSchema]:
    """Return the schemas for a source whose id is not known: those of its name, or else those of its subjects.

    A place is left out where sources of the snapshot disagree.
    """
    same = [found for found in stored if found.name == name]
    found: dict[str, KeptSchema] = {}
    for place, schema in own.items():
        known = [schemas_for(own, source.by_place).get(place) for source in same or stored]
        texts = {kept.content: kept for kept in known if kept is not None and kept.stays(schema)}
        if len(texts) == 1:
            found[place] = next(iter(texts.values()))
    return _other_than(own, found)


def tell_kept(name: str, own: Mapping[str, KeptSchema], kept: Mapping[str, KeptSchema]) -> None:
    """Log by which schemas of the snapshot a source reads."""
    for place, schema in kept.items():
        _log.info(
            "source '%s' reads by %s, as its snapshot has it, and not by %s",
            name,
            schema.shown,
            own[place].shown,
        )


def with_schemas(source: Source[Any, Any], kept: Mapping[str, KeptSchema]) -> Source[Any, Any]:
    """Return the source that reads by these schemas."""
    return source.with_kept_schemas(kept) if kept else source


def _other_than(own: Mapping[str, KeptSchema], stored: Mapping[str, KeptSchema]) -> dict[str, KeptSchema]:
    return {
        place: kept
        for place, kept in schemas_for(own, stored).items()
        if kept.stays(own[place]) and kept.content != own[place].content
    }


def _stored(path: str) -> Iterator[StoredSchemas]:
    opened = open_snapshot(path, verify=False)
    reader = SnapshotReader(opened.directory)
    for operator in opened.metadata.operators:
        if found := schemas_of(_elements(operator, reader)):
            yield StoredSchemas(operator.operator_id, operator.name, found)


def _elements(operator: OperatorState, reader: SnapshotReader) -> Iterator[Sequence[str]]:
    for subtask in operator.subtasks.values():
        for handle in subtask.operator:
            for state in handle.states:
                if state.name != KEPT_SCHEMA or not state.elements:
                    continue
                data = reader.read(handle.handle, f"operator '{operator.name}'")
                serializer = restored_serializer(state.value, None, operator.name, KEPT_SCHEMA)
                for offset, length in state.elements:
                    yield serializer.load_value(data[offset : offset + length])
