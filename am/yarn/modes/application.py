"""Application mode: main() of the user's program runs in a child process beside the master.

The application ends with main() and its last job.

Owner: the master's loop. The program submits by REST on loopback with a token of its own, so that all
functions of a JobClient work there. This process loads none of the program's code.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import replace

from yarrow.am.rest.server.server import RestServer
from yarrow.am.rest.services import EntranceKind, RestServices, RestSettings
from yarrow.am.yarn.modes.application_end import ApplicationEnd, end_of_jobs
from yarrow.am.yarn.modes.cluster import RunningCluster, until_led
from yarrow.am.yarn.modes.program_messages import ProgramEnd, ProgramOutcome, ProgramStart
from yarrow.am.yarn.modes.program_process import ProgramPlace, Sessions, run_main
from yarrow.am.yarn.modes.progress import following
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError
from yarrow.runtime.interpreters.client_interpreter import client_interpreter
from yarrow.runtime.rpc.loopback import LOOPBACK
from yarrow.runtime.rpc.messages import JobResult
from yarrow.runtime.security.rest_tokens import token_hash
from yarrow.runtime.yarn.gateways import FinalStatus
from yarrow.runtime.yarn.layout import USER_FOLDER

#: The program's output, beside the master's log and under Flink's name.
_OUTPUT_FILE = "jobmanager.out"
#: Below the program's files, for an archive with the interpreter of main().
_INTERPRETERS = "interpreters"
#: Seconds in which the jobs of a failed program must be cancelled.
_CANCEL_LIMIT = 10.0
_log = logging.getLogger(__name__)


async def run_application(
    cluster: RunningCluster, services: RestServices, settings: RestSettings, sessions: Sessions
) -> ApplicationEnd:
    """Returns when main() and the last job have ended."""
    program = cluster.description.program
    if program is None:
        raise InvalidProgramError(
            "the description of this application names no program, which application mode needs: start it "
            "with `yarrow run-application`"
        )
    # Only in YARN's application mode does the client not choose main()'s interpreter.
    interpreter = await asyncio.to_thread(
        client_interpreter, cluster.config, lambda: cluster.folder.path / USER_FOLDER / _INTERPRETERS
    )
    token = secrets.token_urlsafe(32)
    own = replace(settings, entrance=EntranceKind.TOKEN, token_hash=token_hash(token), tls=None)
    server = RestServer(services, own)
    # Before main() submits anything: a refusal then would be the program's failure.
    await until_led(cluster.plane.dispatcher_gateway())
    try:
        await server.start(LOOPBACK, (0,))
        start = ProgramStart(
            program=program,
            configuration=cluster.config.to_dict(redact=False),
            rest_host=LOOPBACK,
            rest_port=server.port,
            rest_token=token,
            result_key=cluster.result_key,
            job_id_seed=cluster.folder.application_id,
        )
        output = cluster.folder.log_directory / _OUTPUT_FILE
        place = ProgramPlace(cluster.folder.path, output, interpreter)
        async with following(cluster):
            end = await run_main(start, place, sessions)
            return await _end_with(cluster, end)
    finally:
        await server.stop()


async def _end_with(cluster: RunningCluster, end: ProgramEnd) -> ApplicationEnd:
    if end.outcome is ProgramOutcome.RETURNED:
        results = await _results(cluster)
        if not results:
            return ApplicationEnd(FinalStatus.SUCCEEDED, "The program has ended; it executed no job.")
        return end_of_jobs(results)
    _log.info("the program's main %s:\n%s", end.outcome.value, end.text)
    await _cancel_jobs(cluster)
    if end.outcome is ProgramOutcome.CANCELLED:
        return ApplicationEnd(FinalStatus.KILLED, end.text)
    return ApplicationEnd(FinalStatus.FAILED, end.text)


async def _results(cluster: RunningCluster) -> list[JobResult]:
    """The results of all jobs, after the last one's end."""
    return [await cluster.result_of(job.job_id) for job in await cluster.jobs()]


async def _cancel_jobs(cluster: RunningCluster) -> None:
    """Cancels the running jobs of a failed program, for which nobody waits any more."""
    dispatcher = cluster.plane.dispatcher_gateway()
    running = [job for job in await cluster.jobs() if not job.status.is_globally_terminal_state()]
    for job in running:
        try:
            await dispatcher.cancel_job(job.job_id)
        except YarrowError as error:
            _log.info("job %s is not cancelled: %s", job.job_id, error)
    try:
        async with asyncio.timeout(_CANCEL_LIMIT):
            for job in running:
                await cluster.result_of(job.job_id)
    except TimeoutError:
        _log.warning("some jobs do not end within %g s: they end with the application", _CANCEL_LIMIT)
