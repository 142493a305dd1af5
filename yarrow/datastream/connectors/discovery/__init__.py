"""Discovery of splits that come while a job runs, for the enumerators of several systems.

Owner: the enumerator's thread. Files, partitions and clusters are found by their own enumerators. Must not know a
connector, nor the interfaces of sources.
"""

from yarrow.datastream.connectors.discovery.changes import gone, new
from yarrow.datastream.connectors.discovery.discovery_timer import DiscoveryTimer

__all__ = ["DiscoveryTimer", "gone", "new"]
