"""Waiting for a job on the user's thread: the one place that handles Ctrl-C.

Owner: the thread that called execute. The first Ctrl-C cancels the job and waits until it has ended, so that
nothing is left behind; a second one gives up waiting.
"""

from __future__ import annotations

import sys

from yarrow.common.job_client import JobClient
from yarrow.common.job_execution_result import JobExecutionResult


def wait_for_job(client: JobClient) -> JobExecutionResult:
    """The result of the job. Raises its error, or KeyboardInterrupt when the job was cancelled by Ctrl-C."""
    try:
        return client.get_job_execution_result().result()
    except KeyboardInterrupt:
        cancel_and_wait(client)
        print(f"Job {client.get_job_id()} was cancelled by Ctrl-C.", file=sys.stderr, flush=True)
        raise


def cancel_and_wait(client: JobClient) -> None:
    """Cancels the job and returns when it has ended, however it ended."""
    if client.get_job_execution_result().done():
        return
    # A job that ended in the meantime refuses to be cancelled; its result then says how it ended.
    client.cancel().exception()
    client.get_job_execution_result().exception()
