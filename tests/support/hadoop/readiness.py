"""When a daemon serves: an open port is not enough.

Owner: the caller's thread. A NameNode is ready when it has left safe mode and knows a live DataNode, a
ResourceManager when both nodes are RUNNING. Nothing is started or stopped here.
"""

from __future__ import annotations

import json
import socket
import urllib.error
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from tests.support.hadoop import web
from tests.support.hadoop.layout import KDC, LOOPBACK, NODE_ADDRESSES
from tests.support.hadoop.port_names import KDC_NAME
from tests.support.services.ports import Ports


def what_is_missing(ports: Ports, daemon: str) -> str | None:
    """Why a daemon does not serve yet; None when it does."""
    try:
        return _CHECKS[daemon](ports)
    except (OSError, ValueError, KeyError) as error:
        return f"it does not answer ({error})"


def _zookeeper(ports: Ports) -> str | None:
    answer = web.ask_zookeeper(ports["zookeeper.client"], "srvr")
    return None if "Mode:" in answer else f"it answers {answer.strip()!r}"


def _name_node(ports: Ports) -> str | None:
    state = _name_node_state(ports)
    if state is None:
        return None
    if state.get("FSState") != "Operational":
        return f"HDFS is in safe mode ({state.get('FSState', 'no state yet')})"
    return None if web.name_node_has_started(ports["namenode.web"]) else "it has not left its start-up"


def _data_node(ports: Ports) -> str | None:
    # One attribute: the others of the bean are errors in the log until the DataNode has registered.
    query = "get=Hadoop:service=DataNode,name=DataNodeInfo::BPServiceActorInfo"
    beans = web.get(f"http://{LOOPBACK}:{ports['datanode.web']}/jmx?{query}")["beans"]
    actors = json.loads(beans[0]["BPServiceActorInfo"]) if beans else []
    if not actors or any(actor["ActorState"] != "RUNNING" for actor in actors):
        return "it has not registered with the NameNode"
    state = _name_node_state(ports)
    return (
        None if state is None or state.get("NumLiveDataNodes", 0) else "the NameNode knows no live DataNode"
    )


def _name_node_state(ports: Ports) -> dict[str, Any] | None:
    """None where it serves and asks who we are: of a secured cluster, safe mode is waited out elsewhere."""
    try:
        return web.name_node_state(ports["namenode.web"])
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.UNAUTHORIZED:
            raise
        # Its pages come before it has read what it keeps, its RPC after that.
        socket.create_connection((LOOPBACK, ports["namenode.rpc"]), 1.0).close()
        return None


def _resource_manager(ports: Ports) -> str | None:
    info = web.get(f"http://{LOOPBACK}:{ports['resourcemanager.web']}/ws/v1/cluster/info")["clusterInfo"]
    return None if info["state"] == "STARTED" else f"it is {info['state']}"


def running_nodes(ports: Ports) -> list[dict[str, Any]]:
    """YARN's report of the nodes that it counts as RUNNING."""
    url = f"http://{LOOPBACK}:{ports['resourcemanager.web']}/ws/v1/cluster/nodes?states=RUNNING"
    return list((web.get(url)["nodes"] or {}).get("node", []))


def _node_manager(name: str) -> Callable[[Ports], str | None]:
    def check(ports: Ports) -> str | None:
        address = f"{NODE_ADDRESSES[name]}:{ports[f'{name}.web']}"
        began = web.get(f"http://{address}/ws/v1/node/info")["nodeInfo"]["nmStartupTime"]
        # What YARN heard before this process began, it heard from the one before it.
        heard = [
            node["lastHealthUpdate"]
            for node in running_nodes(ports)
            if node["id"].endswith(f":{ports[f'{name}.rpc']}")
        ]
        return None if heard and heard[0] >= began else "YARN does not count it as RUNNING"

    return check


def _kdc(ports: Ports) -> str | None:
    """Its keytab is there before its port is told."""
    with socket.create_connection((LOOPBACK, ports[KDC_NAME]), 1.0):
        return None


_CHECKS: dict[str, Callable[[Ports], str | None]] = {
    KDC.name: _kdc,
    "zookeeper": _zookeeper,
    "namenode": _name_node,
    "datanode": _data_node,
    "resourcemanager": _resource_manager,
    **{name: _node_manager(name) for name in NODE_ADDRESSES},
}
