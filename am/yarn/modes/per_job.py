"""Per-job mode: runs the one job that the client has compiled, and ends with it.

Owner: the master's loop; threads read the job's files. A later attempt finds the job in high-availability
storage. Without such storage it runs the job again from its beginning.
"""

from __future__ import annotations

import asyncio
import logging

from yarrow.am.yarn.modes.application_end import ApplicationEnd, end_of_job
from yarrow.am.yarn.modes.cluster import LOOK, RunningCluster, until_led
from yarrow.am.yarn.modes.progress import following
from yarrow.runtime.common.errors import DuplicateJobError, FencingTokenError, InvalidProgramError
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.ha.records import RecordsError
from yarrow.runtime.rpc.errors import RpcUnavailableError
from yarrow.runtime.rpc.gateways import DispatcherGateway
from yarrow.runtime.yarn.layout import JOB_GRAPH_FILE
from yarrow.runtime.yarn.packed_job import PackedJobError, unpack_job

_log = logging.getLogger(__name__)


async def run_per_job(cluster: RunningCluster) -> ApplicationEnd:
    """Returns when the job has ended and its client knows."""
    graph = await asyncio.to_thread(_read_job, cluster)
    job_id = graph.job_id
    await submit_until_taken(cluster.plane.dispatcher_gateway(), graph)
    async with following(cluster):
        result = await cluster.result_of(job_id)
    if cluster.description.attached:
        await cluster.stay_for_clients(job_id)
    return end_of_job(result)


async def submit_until_taken(dispatcher: DispatcherGateway, graph: JobGraph) -> None:
    """Submits the job; returns when a leader has it, across changes of leadership."""
    encoded = encode_job_graph(graph)
    while True:
        await until_led(dispatcher)
        try:
            await dispatcher.submit_job(encoded)
        except DuplicateJobError:
            return  # Recovered by high availability, or accepted by a leader that could not answer any more.
        except (RpcUnavailableError, FencingTokenError, RecordsError) as error:
            _log.warning(
                ("the Dispatcher did not accept the job yet, the ApplicationMaster submits it again: %s"),
                error,
            )
            await asyncio.sleep(LOOK)
        else:
            return


def _read_job(cluster: RunningCluster) -> JobGraph:
    """The job, after its files were put into the blob store."""
    try:
        graph, files = unpack_job((cluster.folder.path / JOB_GRAPH_FILE).read_bytes())
    except OSError as error:
        raise InvalidProgramError(
            f"the container's folder has no {JOB_GRAPH_FILE} ({error.strerror}): a per-job application is started by"
            " `yarrow run -t yarn-per-job`"
        ) from None
    except PackedJobError as error:
        raise InvalidProgramError(f"{JOB_GRAPH_FILE}: {error}") from None
    for key, content in files.items():
        if cluster.plane.blobs.put(content) != key:
            raise InvalidProgramError(
                f"the blob {key} of a file of the job has changed on its way: submit the job again"
            )
    return graph
