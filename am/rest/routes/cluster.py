"""Paths about the cluster as a whole.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

import yarrow
from yarrow.am.rest.errors import NotFoundError
from yarrow.am.rest.models.base import EmptyBody
from yarrow.am.rest.models.cluster import (
    ClusterOverviewBody,
    DashboardConfiguration,
    DashboardFeatures,
    DataSets,
)
from yarrow.am.rest.routes.cluster_access import Access, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.am.rest.services import FLINK_VERSION, time_zone

router = flink_router("Cluster")


@router.get("/overview", responses=refusals())
async def cluster_overview(access: Access) -> ClusterOverviewBody:
    """Slots, TaskExecutors and jobs of the cluster."""
    found = await access.services.dispatcher.request_overview()
    return ClusterOverviewBody.of(
        found,
        flink_version=FLINK_VERSION,
        flink_commit="yarrow",
        yarrow_version=yarrow.__version__,
        yarn_attempt=access.services.attempt,
        yarn_max_attempts=access.services.max_attempts,
        yarn_tokens_end=access.services.tokens_end_ms(),
    )


@router.get("/config", responses=refusals())
async def dashboard_configuration(access: Access) -> DashboardConfiguration:
    """Settings of the dashboard."""
    name, offset = time_zone()
    return DashboardConfiguration(
        refresh_interval=access.settings.refresh_interval_ms,
        timezone_name=name,
        timezone_offset=offset,
        flink_version=FLINK_VERSION,
        flink_revision=f"yarrow {yarrow.__version__}",
        features=DashboardFeatures(
            web_submit=access.settings.submit_enabled,
            web_cancel=access.settings.cancel_enabled,
            web_rescale=access.settings.rescale_enabled,
        ),
    )


@router.delete("/cluster", responses=refusals(403))
async def shut_down_cluster(access: Access) -> EmptyBody:
    """Ends the cluster: running jobs are suspended, TaskExecutors and control plane end."""
    await access.services.dispatcher.shut_down_cluster()
    return EmptyBody()


@router.patch("/cluster/clientHeartbeat", status_code=202, responses=refusals(403))
async def client_heartbeat(access: Access) -> EmptyBody:
    """Tells a cluster that ends with its client that the client lives. Yarrow's."""
    access.services.activity.note_heartbeat()
    return EmptyBody()


@router.get("/datasets", responses=refusals())
async def data_sets() -> DataSets:
    """Cached intermediate results: Yarrow keeps none, the list is empty."""
    return DataSets(data_sets=[])


@router.delete("/datasets/{datasetid}", status_code=202, responses=refusals(400, 403, 404))
async def delete_data_set(
    dataset_id: Annotated[str, Path(alias="datasetid", pattern="^[0-9a-fA-F]{32}$")],
) -> EmptyBody:
    """Deletes a cached result: there are none, so that every id is unknown."""
    raise NotFoundError(f"no data set {dataset_id} is kept: Yarrow caches no intermediate results")
