"""The application of a job in Flink's sense: on YARN the one that runs it, in a session the job itself.

Owner: none; pure. An id has 32 hexadecimal digits, as Flink's clients expect.
"""

from __future__ import annotations

import hashlib

import msgspec


class WholeApplication(msgspec.Struct, frozen=True):
    """The single application of a cluster that lives for it."""

    id: str
    name: str
    #: Epoch milliseconds at which this attempt began.
    start_time: int
    #: Whether it ends with its one job; else its program may submit more jobs while it runs.
    ends_with_job: bool

    @classmethod
    def on_yarn(
        cls, application_id: str, name: str, start_time: int, *, ends_with_job: bool
    ) -> WholeApplication:
        """The application that YARN calls `application_id`: each of its attempts has the same id here."""
        digest = hashlib.sha256(f"yarn {application_id}".encode()).hexdigest()
        return cls(digest[:32], name or application_id, start_time, ends_with_job)


def application_of(job_id: str, whole: WholeApplication | None) -> str:
    """The id of the application of a job; without a `whole` one the job's own."""
    return job_id if whole is None else whole.id
