"""The names of the ports of one Hadoop, by daemon and use.

Owner: none; values only.
"""

from __future__ import annotations

#: Every port of a cluster, by daemon and use.
NAMES = (
    "zookeeper.client",
    "namenode.rpc",
    "namenode.web",
    "datanode.data",
    "datanode.rpc",
    "datanode.web",
    "resourcemanager.rpc",
    "resourcemanager.scheduler",
    "resourcemanager.tracker",
    "resourcemanager.admin",
    "resourcemanager.web",
    "nodemanager1.rpc",
    "nodemanager1.localizer",
    "nodemanager1.web",
    "nodemanager2.rpc",
    "nodemanager2.localizer",
    "nodemanager2.web",
)
#: The port that a secured cluster has besides.
KDC_NAME = "kdc.client"
