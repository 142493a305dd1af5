"""The contract of connectors as a kit: seeded plans of kills, outages and restarts, and what must hold afterwards.

Tests of a connector subclass ConnectorUnderTest, and call `check_connector` once for each plan.
"""

from __future__ import annotations

from yarrow.testing.connectors.connector_plan import ConnectorPlan, PlanKind, make_connector_plan
from yarrow.testing.connectors.connector_trial import check_connector
from yarrow.testing.connectors.connector_under_test import ConnectorUnderTest, Outage
from yarrow.testing.connectors.errors import ConnectorCheckError
from yarrow.testing.connectors.files_under_test import FilesAsInput, FilesAsOutput

__all__ = [
    "ConnectorCheckError",
    "ConnectorPlan",
    "ConnectorUnderTest",
    "FilesAsInput",
    "FilesAsOutput",
    "Outage",
    "PlanKind",
    "check_connector",
    "make_connector_plan",
]
