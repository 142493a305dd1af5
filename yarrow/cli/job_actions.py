"""Actions with jobs of a cluster: list, cancel, savepoint, rescale, rate limits, stop, checkpoint.

Owner: the main thread. Each action imports what it needs when it runs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import isfinite

from yarrow.cli.flag_settings import rest_of
from yarrow.cli.parameters import flags
from yarrow.cli.parameters.action import Given, action
from yarrow.client.errors import CommandError

_JOB_ID = re.compile(r"[0-9a-fA-F]{32}")
#: Stands for any number of rows or bytes.
_NO_LIMIT = "none"
#: Flags that find the cluster.
_CLUSTER = (flags.DYNAMIC, flags.TARGET, flags.ADDRESS, flags.APPLICATION_ID)


@action(flags.RUNNING, flags.SCHEDULED, flags.EVERY, *_CLUSTER)
def list_jobs(given: Given) -> None:
    """Lists the jobs of a cluster; without a flag those that run or are scheduled."""
    from yarrow.cli.job_commands import list_jobs as list_them

    list_them(rest_of(given), given["running"], given["scheduled"], given["every"])


@action(replace(flags.JOBS, metavar="[DIR] JOB"), flags.WITH_SAVEPOINT, *_CLUSTER)
def cancel(given: Given) -> None:
    """Cancels a job of a cluster."""
    from yarrow.cli.job_commands import cancel_job
    from yarrow.cli.savepoint_commands import cancel_with_savepoint

    arguments = given["arguments"] or []
    if not given["with_savepoint"]:
        if len(arguments) != 1:
            raise CommandError(f"cancel takes one JOB_ID, not {len(arguments)}; a directory needs -s.")
        job = _job(arguments[0])
        cancel_job(rest_of(given), job)
        return
    # Flink's forms: `cancel -s JOB`, `cancel -s DIR JOB`, and the job before the flag.
    jobs = [argument for argument in arguments if _JOB_ID.fullmatch(argument)]
    directories = [argument for argument in arguments if argument not in jobs]
    if len(jobs) != 1 or len(directories) > 1:
        raise CommandError(f"cancel -s takes [DIR] JOB, not {' '.join(arguments)}.")
    cancel_with_savepoint(rest_of(given), jobs[0], next(iter(directories), None))


@action(replace(flags.JOBS, metavar="JOB [DIR]"), flags.DISPOSE, flags.FORMAT, flags.NOT_WAITING, *_CLUSTER)
def savepoint(given: Given) -> None:
    """Takes a savepoint of a running job, or deletes one."""
    from yarrow.cli.savepoint_commands import dispose, take_savepoint

    arguments = given["arguments"]
    if given["dispose_path"] is not None:
        if arguments:
            raise CommandError(f"savepoint -d takes a path and no job, not {' '.join(arguments)}.")
        dispose(rest_of(given), given["dispose_path"])
        return
    if not arguments or len(arguments) > 2:
        raise CommandError("savepoint takes JOB [DIR]: `yarrow list` shows the jobs.")
    job, directory = _job(arguments[0]), arguments[1] if len(arguments) == 2 else None
    take_savepoint(rest_of(given), job, directory, given["format_type"], given["detached"])


@action(flags.JOB_ID, flags.NEW_PARALLELISM, *_CLUSTER)
def rescale(given: Given) -> None:
    """Changes the parallelism of a running job, which goes on from a checkpoint."""
    from yarrow.cli.job_commands import rescale_job

    job = _job(given["job_id"])
    rescale_job(rest_of(given), job, given["parallelism"])


@action(flags.JOB_ID, flags.LIMITED, flags.BYTES_PER_SECOND, *_CLUSTER)
def rate_limits(given: Given) -> None:
    """Shows the rate limits of a running job, or sets that of one source or sink.

    With NAME and ROWS the limit holds at once, and for the next master. Without `--bytes` it has no bound in bytes.
    """
    from yarrow.cli.job_commands import change_rate_limit, show_rate_limits

    job, limited = _job(given["job_id"]), given["limited"] or []
    if not limited and given["bytes_per_second"] is None:
        show_rate_limits(rest_of(given), job)
        return
    if not limited or len(limited) > 2 or (len(limited) == 1 and given["bytes_per_second"] is None):
        raise CommandError("rate-limits takes JOB to show limits, and JOB NAME ROWS to set one.")
    rows = _rate("ROWS", limited[1]) if len(limited) == 2 else None
    size_bytes = _rate("--bytes", given["bytes_per_second"] or _NO_LIMIT)
    change_rate_limit(rest_of(given), job, limited[0], rows, size_bytes)


def _rate(name: str, text: str) -> float | None:
    """A number of rows or bytes a second; None = no limit. Raises CommandError for other text."""
    if text == _NO_LIMIT:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not (isfinite(rate) and rate > 0):
        raise CommandError(f"{name} must be a number above 0, or `{_NO_LIMIT}` for no limit, not {text!r}.")
    return rate


@action(flags.JOB_ID, flags.SAVEPOINT_PATH, flags.DRAIN, flags.FORMAT, flags.NOT_WAITING, *_CLUSTER)
def stop(given: Given) -> None:
    """Stops a job with a savepoint."""
    from yarrow.cli.savepoint_commands import stop as stop_it

    job, directory, drain = _job(given["job_id"]), given["directory"], given["drain"]
    stop_it(rest_of(given), job, directory, drain, given["format_type"], given["detached"])


@action(flags.JOB_ID, flags.FULL, *_CLUSTER)
def checkpoint(given: Given) -> None:
    """Takes a checkpoint of a running job."""
    from yarrow.cli.savepoint_commands import take_checkpoint

    job = _job(given["job_id"])
    take_checkpoint(rest_of(given), job, given["full"])


@action(flags.JOB_ID, *_CLUSTER)
def watermark(given: Given) -> None:
    """Shows the event time of a running job, operator by operator, and who holds it back.

    The search follows the slowest inputs from the ends of the job up to a split, and tells why and what to do.
    """
    from yarrow.cli.job_commands import show_watermarks

    job = _job(given["job_id"])
    show_watermarks(rest_of(given), job)


def _job(text: str) -> str:
    """A valid job id, unchanged. Raises CommandError for anything else before a request."""
    if not _JOB_ID.fullmatch(text):
        raise CommandError(
            f"{text!r} is no job's id, which has 32 hexadecimal digits: `yarrow list` shows the jobs."
        )
    return text
