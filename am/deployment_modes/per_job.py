"""Per job: runs the one job that the client has compiled, and ends with it.

Owner: the master's loop; the job's files are read in threads. A later attempt finds the job in high-availability
storage, or, where there is none, runs it again from its beginning.
"""

from __future__ import annotations

import asyncio

from yarrow.am.deployment_modes.application_end import ApplicationEnd, end_of_job
from yarrow.am.deployment_modes.cluster import RunningCluster
from yarrow.am.deployment_modes.progress import following
from yarrow.runtime.common.errors import DuplicateJobError, InvalidProgramError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.yarn.layout import JOB_GRAPH_FILE
from yarrow.runtime.yarn.packed_job import PackedJobError, unpack_job


async def run_per_job(cluster: RunningCluster) -> ApplicationEnd:
    """Returns when the job has ended, and its client knows."""
    graph = await asyncio.to_thread(_read_job, cluster)
    dispatcher = cluster.plane.dispatcher_gateway()
    # A job that high availability has recovered runs already.
    try:
        job_id = await dispatcher.submit_job(encode_job_graph(graph))
    except DuplicateJobError:
        job_id = graph.job_id
    async with following(cluster, job_id):
        result = await cluster.result_of(job_id)
    if cluster.description.attached:
        await cluster.stay_for_clients(JobID(job_id))
    return end_of_job(result)


def _read_job(cluster: RunningCluster) -> JobGraph:
    """The job, its files put into the blob store."""
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
                f"a file of the job has changed on its way ({key}): submit the job again"
            )
    return graph
