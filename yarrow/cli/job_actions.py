"""Actions with jobs of a cluster: list, cancel, savepoint, rescale, stop, checkpoint.

Owner: the main thread. Each action imports what it needs when it runs.
"""

from __future__ import annotations

import re
from typing import Annotated

import typer

from yarrow.cli.flag_settings import rest_of
from yarrow.cli.flags import Address, ApplicationId, Dynamic, Target
from yarrow.client.errors import CommandError

_JOB_ID = re.compile(r"[0-9a-fA-F]{32}")
Format = Annotated[
    str, typer.Option("-type", "--type", metavar="canonical|native", help="Form of the savepoint.")
]
NotWaiting = Annotated[bool, typer.Option("-detached", "--detached", help="Do not wait for the savepoint.")]


def list_jobs(
    running: Annotated[bool, typer.Option("-r", "--running", help="Running jobs only.")] = False,
    scheduled: Annotated[bool, typer.Option("-s", "--scheduled", help="Scheduled jobs only.")] = False,
    every: Annotated[bool, typer.Option("-a", "--all", help="All jobs, ended ones too.")] = False,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Lists the jobs of a cluster; without a flag those that run or are scheduled."""
    from yarrow.cli.job_commands import list_jobs as list_them

    list_them(rest_of(dynamic, target, address, application_id), running, scheduled, every)


def cancel(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[DIR] JOB", help="The job.")] = None,
    with_savepoint: Annotated[
        bool,
        typer.Option("-s", "--withSavepoint", help="Take a savepoint before, in DIR. Deprecated: use stop."),
    ] = False,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Cancels a job of a cluster."""
    from yarrow.cli.job_commands import cancel_job
    from yarrow.cli.savepoint_commands import cancel_with_savepoint

    arguments = arguments or []
    if not with_savepoint:
        if len(arguments) != 1:
            raise CommandError(f"cancel takes one JOB_ID, not {len(arguments)}; a directory needs -s.")
        job = _job(arguments[0])
        cancel_job(rest_of(dynamic, target, address, application_id), job)
        return
    # Flink's forms: `cancel -s JOB`, `cancel -s DIR JOB`, and the job before the flag.
    jobs = [argument for argument in arguments if _JOB_ID.fullmatch(argument)]
    directories = [argument for argument in arguments if argument not in jobs]
    if len(jobs) != 1 or len(directories) > 1:
        raise CommandError(f"cancel -s takes [DIR] JOB, not {' '.join(arguments)}.")
    cancel_with_savepoint(
        rest_of(dynamic, target, address, application_id), jobs[0], next(iter(directories), None)
    )


def savepoint(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="JOB [DIR]", help="The job.")] = None,
    dispose_path: Annotated[
        str | None, typer.Option("-d", "--dispose", metavar="PATH", help="Delete this savepoint instead.")
    ] = None,
    format_type: Format = "canonical",
    detached: NotWaiting = False,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Takes a savepoint of a running job, or deletes one."""
    from yarrow.cli.savepoint_commands import dispose, take_savepoint

    if dispose_path is not None:
        if arguments:
            raise CommandError(f"savepoint -d takes a path and no job, not {' '.join(arguments)}.")
        dispose(rest_of(dynamic, target, address, application_id), dispose_path)
        return
    if not arguments or len(arguments) > 2:
        raise CommandError("savepoint takes JOB [DIR]: `yarrow list` shows the jobs.")
    job, directory = _job(arguments[0]), arguments[1] if len(arguments) == 2 else None
    take_savepoint(rest_of(dynamic, target, address, application_id), job, directory, format_type, detached)


def rescale(
    job_id: Annotated[str, typer.Argument(help="The job.")],
    parallelism: Annotated[int, typer.Argument(help="Its parallelism from now on.", min=1)],
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Changes the parallelism of a running job, which goes on from a checkpoint."""
    from yarrow.cli.job_commands import rescale_job

    _job(job_id)
    rescale_job(rest_of(dynamic, target, address, application_id), job_id, parallelism)


def stop(
    job_id: Annotated[str, typer.Argument(help="The job.")],
    directory: Annotated[
        str | None, typer.Option("-p", "--savepointPath", metavar="DIR", help="Where the savepoint goes.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("-d", "--drain", help="Send the last watermark before, so that all timers fire.")
    ] = False,
    format_type: Format = "canonical",
    detached: NotWaiting = False,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Stops a job with a savepoint."""
    from yarrow.cli.savepoint_commands import stop as stop_it

    _job(job_id)
    stop_it(
        rest_of(dynamic, target, address, application_id), job_id, directory, drain, format_type, detached
    )


def checkpoint(
    job_id: Annotated[str, typer.Argument(help="The job.")],
    full: Annotated[
        bool, typer.Option("-full", "--full", help="Refer to nothing of earlier checkpoints.")
    ] = False,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Takes a checkpoint of a running job."""
    from yarrow.cli.savepoint_commands import take_checkpoint

    _job(job_id)
    take_checkpoint(rest_of(dynamic, target, address, application_id), job_id, full)


def _job(text: str) -> str:
    """A job's id as it is; CommandError for what is none, before anybody is asked."""
    if not _JOB_ID.fullmatch(text):
        raise CommandError(
            f"{text!r} is no job's id, which has 32 hexadecimal digits: `yarrow list` shows the jobs."
        )
    return text
