"""The process in which an application's main() runs on YARN: `python -m yarrow.cli.application_program <descriptor>`.

Owner: its main thread. The program's description comes on standard input, which then stays open while the
master wants this process to live. The program's end goes back over the pipe whose number is the argument.
Jobs are submitted to the master by REST.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence

import msgspec

from yarrow.am.rest.programs.control_pipe import take_request
from yarrow.am.rest.programs.runner import describe_failure
from yarrow.am.yarn.modes.program_messages import (
    MAX_START_BYTES,
    ProgramEnd,
    ProgramOutcome,
    ProgramStart,
    decode_start,
    encode_end,
)
from yarrow.cli.errors import ProgramFailedError
from yarrow.cli.program import Program, run_program
from yarrow.client.errors import CommandError
from yarrow.client.rest.job_submission import submit
from yarrow.client.rest.remote_job_client import RemoteJobClient
from yarrow.client.rest.rest_client import RestClient, RestError
from yarrow.common.job_client import JobClient
from yarrow.runtime.common.errors import JobCancelledError, JobExecutionError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.executor import LocalFile, use_for_this_process
from yarrow.runtime.graph.job_graph import JobGraph

_CONFLICT = 409


class ApplicationExecutor:
    """Submits to the master beside this process.

    In a later attempt, main() gets the jobs of the former one back.
    """

    def __init__(self, rest: RestClient, job_id_seed: str) -> None:
        self._rest = rest
        self._seed = job_id_seed
        self._lock = threading.Lock()
        self._executed = 0

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        """Uploads and submits. Raises RestError with the master's words if it refuses."""
        with self._lock:
            self._executed += 1
            job_id = job_id_of(self._seed, self._executed)
        graph = msgspec.structs.replace(job_graph, job_id=job_id, plan={**job_graph.plan, "jid": job_id})
        try:
            submit(self._rest, graph, files)
        except RestError as error:
            if error.status != _CONFLICT:
                raise
            print(f"Job {graph.name!r} ({job_id}) was taken over from the former attempt.", flush=True)
        else:
            print(f"Job has been submitted with JobID {job_id}", flush=True)
        return RemoteJobClient(self._rest, graph)


def job_id_of(seed: str, number: int) -> JobID:
    """The id of the job of a program's execute number `number`, from 1; the same in every attempt."""
    return JobID(hashlib.sha256(f"{seed} {number}".encode()).hexdigest()[:32])


def main() -> int:
    """Runs the one requested program; returns 0, however it ended."""
    results = int(sys.argv[1])
    os.set_inheritable(results, False)
    start = decode_start(take_request(MAX_START_BYTES))
    end = run(start)
    with os.fdopen(results, "wb") as file:
        file.write(encode_end(end))
    # Non-daemon threads of the program would keep the process alive.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run(start: ProgramStart) -> ProgramEnd:
    """Runs main(); returns its end."""
    rest = RestClient(start.rest_host, start.rest_port, token=start.rest_token, result_key=start.result_key)
    use_for_this_process(ApplicationExecutor(rest, start.job_id_seed), start.configuration)
    program = Program(
        path=start.program.path or None,
        module=start.program.module or None,
        arguments=start.program.arguments,
        python_files=start.program.python_files,
    )
    try:
        run_program(program)
    except SystemExit as end:
        if end.code in (None, 0):
            return ProgramEnd(outcome=ProgramOutcome.RETURNED)
        return ProgramEnd(outcome=ProgramOutcome.FAILED, text=f"The program exited with {end.code!r}.")
    except ProgramFailedError as failed:
        return _failure(failed.__cause__ or failed)
    except CommandError as error:
        return ProgramEnd(outcome=ProgramOutcome.FAILED, text=str(error))
    return ProgramEnd(outcome=ProgramOutcome.RETURNED)


def _failure(error: BaseException) -> ProgramEnd:
    if isinstance(error, JobCancelledError):
        return ProgramEnd(outcome=ProgramOutcome.CANCELLED, text=str(error))
    if isinstance(error, JobExecutionError):
        # Its text begins with the user's own traceback on the worker, which says more than the place of
        # execute.
        return ProgramEnd(outcome=ProgramOutcome.FAILED, text=str(error))
    # The frames before the program's own belong to its start.
    own = error.__traceback__
    while own is not None and os.path.dirname(own.tb_frame.f_code.co_filename) == os.path.dirname(__file__):
        own = own.tb_next
    text = describe_failure(error.with_traceback(own))
    return ProgramEnd(outcome=ProgramOutcome.FAILED, text=text)


if __name__ == "__main__":
    sys.exit(main())
