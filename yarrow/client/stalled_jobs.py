"""What a time-out of a waiting client says of a job that has not ended: who holds its event time back.

Owner: any thread. The question has a limit of its own, and an answer that does not come leaves the error as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Seconds in which a cluster has to answer.
ANSWER_SECONDS = 5.0


def stalled_text(job_id: str, holders: Iterable[tuple[str, str]], status: str) -> str:
    """The sentence of an error, by explanation and remedy of each holder of event time."""
    parts = [f"{explanation}. {remedy}." for explanation, remedy in holders]
    if not parts:
        return f"Job {job_id} is {status}."
    return f"Job {job_id} is {status}. Event time waits: {' '.join(parts)}"
