"""SnapshotTrust: whether pickled state of a snapshot may be read: by the seal of its `_metadata`.

Reading a pickle runs its writer's code, so it is read only if the snapshot is certainly our own. Then its
metadata carry a HMAC made with the job's secret, and the SHA-256 of every other byte. Owner: blocking threads
of the JobMaster, before anything of a job is started. The secret goes into no message, log or configuration.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from yarrow.runtime.config.options import security
from yarrow.runtime.snapshot.errors import SnapshotStorageError, UntrustedPickleError
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    OperatorSubtaskState,
    RocksDBSnapshot,
    SerializerConfig,
    ValueFormat,
)
from yarrow.runtime.snapshot.metadata import Seal

_log = logging.getLogger(__name__)

#: Least bytes of a secret: a shorter one can be guessed.
SHORTEST_SECRET = 16
#: Most states that a message names; it counts the rest.
_NAMED = 8
_Test = Callable[[SerializerConfig], bool]


@dataclass(frozen=True, slots=True)
class SnapshotTrust:
    """A job's requirements of the snapshot from which it begins."""

    #: b"" = none.
    secret: bytes = field(default=b"", repr=False)
    #: Without a secret: whether pickled state is read.
    trust_pickle: bool = True

    @classmethod
    def of(cls, secret_file: str, trust_pickle: bool) -> SnapshotTrust:
        """Reads the file, "" = none.

        Raises SnapshotStorageError for a file that others may read, or a short secret.
        """
        return cls(read_secret(secret_file) if secret_file else b"", trust_pickle)


def read_secret(path: str) -> bytes:
    """The secret in a local file, which only its owner may be able to read."""
    key = security.SNAPSHOT_SECRET_FILE.key
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read().strip()
    except OSError as error:
        raise SnapshotStorageError(f"{key}: {path} cannot be read ({error.strerror or error})") from error
    if mode & 0o077:
        raise SnapshotStorageError(f"{key}: others may read {path}: run chmod 600 on it")
    if len(secret) < SHORTEST_SECRET:
        raise SnapshotStorageError(
            f"{key}: the secret in {path} is shorter than {SHORTEST_SECRET} bytes: put random ones there, for instance"
            " by openssl rand -hex 32"
        )
    return secret


def check_trust(metadata: CheckpointMetadata, seal: Seal, trust: SnapshotTrust, path: str) -> bool:
    """Whether pickled values of a snapshot may be read; readers then refuse undeclared pickles.

    Raises UntrustedPickleError with operators and states that have pickles which must not be read.
    """
    # Imported late: it imports numpy, which a master needs only for a restore.
    from yarrow.runtime.snapshot.value_serializers import holds_pickles

    if trust.secret and seal is Seal.VALID:
        return True
    if not trust.secret and trust.trust_pickle:
        names = sorted({name for name, _ in _states(metadata, holds_pickles)})
        if names:
            _log.warning(
                "%s holds pickled state, which is read unchecked because %s is not set: %s",
                path, security.SNAPSHOT_SECRET_FILE.key, _listed(names),
            )  # fmt: skip
        return True
    # Nobody looks into a database's files before it is open: state without a declared type may hold pickles
    # there.
    untyped = _states(metadata, lambda config: config.format is not ValueFormat.TYPED)
    hidden = {name for name, native in untyped if native}
    names = sorted({*hidden, *(name for name, _ in _states(metadata, holds_pickles))})
    if not names:
        return False
    if not trust.secret:
        raise UntrustedPickleError(
            f"{path} holds pickled state, and {security.SNAPSHOT_TRUST_PICKLE.key} is false: {_listed(names)}. Declare"
            f" the types of these states in the program that writes it, or set {security.SNAPSHOT_SECRET_FILE.key} for"
            " that program and this one."
        )
    why = "was made with another secret, or changed" if seal is Seal.WRONG else "bears no seal"
    raise UntrustedPickleError(
        f"{path} holds pickled state, and its _metadata {why} ({security.SNAPSHOT_SECRET_FILE.key}):"
        f" {_listed(names)}. Restore with the secret with which the snapshot was written. If you trust the"
        " snapshot, restore it once without a secret, and take a savepoint with a secret."
    )


def _states(metadata: CheckpointMetadata, holds: _Test) -> Iterator[tuple[str, bool]]:
    """States with a serializer for which the test holds, and whether they lie in a database's own files."""
    for operator in metadata.operators:
        for subtask in operator.subtasks.values():
            for name, configs, native in _serializers(subtask):
                if any(config is not None and holds(config) for config in configs):
                    yield f"operator '{operator.name}', {name}", native


def _serializers(
    subtask: OperatorSubtaskState,
) -> Iterator[tuple[str, tuple[SerializerConfig | None, ...], bool]]:
    for keyed in subtask.keyed:
        for state in keyed.states:
            yield f"state '{state.name}'", (state.value, state.map_key), isinstance(keyed, RocksDBSnapshot)
    for part in subtask.operator:
        for named in part.states:
            yield f"state '{named.name}'", (named.value, named.map_key), False
    for channel in subtask.channels:
        yield "records in flight", (channel.rows,), False


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return "; ".join(names[:_NAMED]) + more
