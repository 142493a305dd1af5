"""PickleTrust: whose pickles in a savepoint are read here, by the secret of the jobs that it comes from and goes to.

Owner: the calling thread; reads a local file. The secret goes into no message. Where there is one, what is sealed with
it is read as the job itself would read it. Nothing else that holds pickles gets a seal unless the caller trusts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from yarrow.runtime.config.options import security
from yarrow.runtime.snapshot.opening import OpenedSnapshot, open_snapshot
from yarrow.runtime.snapshot.trust import SnapshotTrust, check_trust, read_secret


@dataclass(frozen=True, slots=True)
class PickleTrust:
    """The secret that seals savepoints read and written here, and so decides whose pickles are trusted."""

    #: b"" = nothing is sealed.
    secret: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, configuration: Mapping[str, str] | None) -> PickleTrust:
        """By security.snapshot.secret-file. Raises SnapshotStorageError for a file that cannot be used."""
        path = (configuration or {}).get(security.SNAPSHOT_SECRET_FILE.key, "")
        return cls(read_secret(path) if path else b"")

    def open(self, path: str, trust_pickle: bool) -> tuple[OpenedSnapshot, bool]:
        """A savepoint, and whether its pickles are read: where the caller trusts it, or its seal is right.

        Raises SnapshotError; UntrustedPickleError where there is a secret and pickles that it did not seal.
        """
        opened = open_snapshot(path, secret=self.secret)
        if trust_pickle or not self.secret:
            return opened, trust_pickle
        return opened, check_trust(opened.metadata, opened.seal, SnapshotTrust(self.secret, False), path)
