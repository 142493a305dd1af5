"""The state of a task's operators at the end of history: files of a savepoint, and handles that name them.

Owner: the task thread. Each attempt writes a file of its own (ForeignFiles). Must not write metadata.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.operators.sources.source_reader import HISTORY_CHECKPOINT
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.snapshot.handles import OperatorSubtaskState
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles

_DECODER = msgspec.msgpack.Decoder(dict[OperatorID, OperatorSubtaskState])


def write_state(chain: OperatorChain, place: ForeignFiles) -> bytes:
    """Writes the state of all operators; returns the encoded handles by operator.

    Raises OperatorFailure with the operator, and SnapshotStorageError for a savepoint that was given up.
    """
    with place.open() as output:
        return msgspec.msgpack.encode(_written(chain, place, output.file))


def decode_states(data: bytes) -> Mapping[OperatorID, OperatorSubtaskState]:
    """The handles that `write_state` has returned. Raises msgspec.ValidationError."""
    return _DECODER.decode(data)


def _written(
    chain: OperatorChain, place: ForeignFiles, output: SnapshotOutput
) -> dict[OperatorID, OperatorSubtaskState]:
    options = CheckpointOptions(
        kind=SnapshotKind.SAVEPOINT, location=CheckpointLocation(directory=place.directory)
    )
    states: dict[OperatorID, OperatorSubtaskState] = {}
    for index in range(len(chain.operators)):
        part = chain.snapshot_operator(index, HISTORY_CHECKPOINT, options)
        try:
            keyed = part.keyed.write(output) if part.keyed is not None else ()
            own = part.operator.write(output) if part.operator is not None else ()
        except Exception as error:
            raise OperatorFailure(part.operator_name, "", error) from error
        state = OperatorSubtaskState(keyed=keyed, operator=own)
        if not state.is_empty:
            states[part.operator_id] = state
    return states
