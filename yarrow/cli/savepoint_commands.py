"""savepoint, stop, checkpoint, cancel with savepoint, check-savepoint. Output as Flink's command line has it.

Owner: the main thread.
"""

from __future__ import annotations

import json

from yarrow.cli.program import Program
from yarrow.cli.run_command import planned_graph
from yarrow.cli.savepoints.savepoint_checks import answer_of
from yarrow.cli.savepoints.savepoint_report import report_on, text_of
from yarrow.client.errors import CommandError
from yarrow.client.rest.rest_client import RestClient, RestError
from yarrow.client.rest.rest_operations import OperationFailedError, run_operation
from yarrow.runtime.config.settings import Settings

FORMATS = ("canonical", "native")


def take_savepoint(
    rest: RestClient, job_id: str, directory: str | None, format_type: str, detached: bool
) -> None:
    """Takes a savepoint of a running job and prints its path."""
    job = f"/jobs/{job_id}"
    body = {"target-directory": directory, "cancel-job": False, "formatType": _format(format_type)}
    suffix = " in detached mode" if detached else ""
    print(f"Triggering savepoint for job {job_id}{suffix}.", flush=True)
    try:
        if detached:
            trigger = rest.json("POST", f"{job}/savepoints", body)["request-id"]
            print(f"Successfully trigger manual savepoint, triggerId: {trigger}")
            return
        print("Waiting for response...", flush=True)
        done = run_operation(rest, f"{job}/savepoints", body, f"{job}/savepoints")
    except (RestError, OperationFailedError) as error:
        raise CommandError(f"Triggering a savepoint for the job {job_id} failed. {_words(error)}") from None
    print(f"Savepoint completed. Path: {done['location']}")
    print("You can resume your program from this savepoint with the run command.")


def dispose(rest: RestClient, path: str) -> None:
    """Deletes a savepoint's files."""
    print(f"Disposing savepoint '{path}'.", flush=True)
    print("Waiting for response...", flush=True)
    try:
        run_operation(rest, "/savepoint-disposal", {"savepoint-path": path}, "/savepoint-disposal")
    except (RestError, OperationFailedError) as error:
        raise CommandError(f"Disposing the savepoint '{path}' failed. {_words(error)}") from None
    print(f"Savepoint '{path}' disposed.")


def stop(
    rest: RestClient, job_id: str, directory: str | None, drain: bool, format_type: str, detached: bool
) -> None:
    """Stops a job with a savepoint and prints its path."""
    job = f"/jobs/{job_id}"
    kind = _format(format_type)
    print(f'{"Draining" if drain else "Suspending"} job "{job_id}" with a {kind} savepoint.', flush=True)
    body = {"targetDirectory": directory, "drain": drain, "formatType": kind}
    try:
        if detached:
            trigger = rest.json("POST", f"{job}/stop", body)["request-id"]
            print(f"Successfully trigger manual savepoint, triggerId: {trigger}")
            return
        print(f"Triggering stop-with-savepoint for job {job_id}.", flush=True)
        print("Waiting for response...", flush=True)
        done = run_operation(rest, f"{job}/stop", body, f"{job}/savepoints")
    except (RestError, OperationFailedError) as error:
        raise CommandError(f'Could not stop with a savepoint job "{job_id}". {_words(error)}') from None
    print(f"Savepoint completed. Path: {done['location']}")


def cancel_with_savepoint(rest: RestClient, job_id: str, directory: str | None) -> None:
    """Takes a savepoint and cancels the job with it."""
    print(
        'DEPRECATION WARNING: Cancelling a job with savepoint is deprecated. Use "stop" instead.', flush=True
    )
    where = directory or "default savepoint directory"
    print(f"Cancelling job {job_id} with savepoint to {where}.", flush=True)
    job = f"/jobs/{job_id}"
    body = {"target-directory": directory, "cancel-job": True}
    try:
        done = run_operation(rest, f"{job}/savepoints", body, f"{job}/savepoints")
    except (RestError, OperationFailedError) as error:
        raise CommandError(f"Could not cancel job {job_id}. {_words(error)}") from None
    print(f"Cancelled job {job_id}. Savepoint stored in {done['location']}.")


def take_checkpoint(rest: RestClient, job_id: str, full: bool = False) -> None:
    """Takes a checkpoint of a running job now."""
    job = f"/jobs/{job_id}"
    print(f"Triggering checkpoint for job {job_id}.", flush=True)
    print("Waiting for response...", flush=True)
    try:
        done = run_operation(
            rest,
            f"{job}/checkpoints",
            {"checkpointType": "FULL" if full else "CONFIGURED"},
            f"{job}/checkpoints",
        )
    except (RestError, OperationFailedError) as error:
        raise CommandError(f"Triggering a checkpoint for the job {job_id} failed. {_words(error)}") from None
    print(f"Checkpoint {done['checkpointId']} for job {job_id} completed.")


def check(
    program: Program, path: str, config: Settings, *, as_json: bool = False, open_functions: bool = False
) -> bool:
    """Prints which state of a savepoint a program would restore; False if it would be refused.

    Nothing is started.
    """
    graph = planned_graph(program, config)
    settings = config.overlay(graph.configuration, f"job {graph.name!r}")
    report = report_on(answer_of(graph, path, settings, open_functions=open_functions))
    print(json.dumps(report.as_json(), indent=2) if as_json else text_of(report))
    return report.restorable


def _format(text: str) -> str:
    if text.lower() not in FORMATS:
        raise CommandError(f"--type {text}: expected {' or '.join(FORMATS)}.")
    return text.upper()


def _words(error: CommandError) -> str:
    return " ".join(error.errors) if isinstance(error, RestError) and error.errors else str(error)
