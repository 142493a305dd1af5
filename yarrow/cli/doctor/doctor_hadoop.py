"""The doctor's checks on the cluster: HDFS, the ResourceManager, queues and nodes, clocks, Kerberos.

Owner: the main thread; blocking, each request with a short limit. It only reads, except for one small file,
which it removes.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import msgspec

from yarrow.cli.doctor.doctor_findings import Finding, failed, fine, warned
from yarrow.client.yarn.abandoned_files import abandoned_folders
from yarrow.client.yarn.abandoned_spark import abandoned_spark_applications
from yarrow.client.yarn.deployment import check_resources
from yarrow.client.yarn.spark_environment import staging_of_spark
from yarrow.client.yarn.submission import ContainerContent, build_submission
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.options import security, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hdfs_settings import hdfs_settings, http_addresses, use_hdfs_settings
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.ha.settings import is_highly_available
from yarrow.runtime.yarn.gateways import ApplicationSubmission
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration, check_answers
from yarrow.runtime.yarn.resource_manager_web import Node, ResourceManagerWeb, ResourceManagerWebError
from yarrow.runtime.yarn.staging_root import staging_root

_SECONDS = 5.0
#: Seconds. Kerberos silently refuses a clock that differs by more (its default).
_SKEW_REFUSED = 300.0
_SKEW_NOTED = 10.0
#: A packed environment and checkpoints need some room.
_LITTLE_SPACE = 5 << 30
#: Part of the error of a page that requires a login.
_LOGIN_WANTED = f"status {HTTPStatus.UNAUTHORIZED.value}"
#: Most entries of a list that are shown.
_SHOWN = 5
#: Hadoop's default of the longest life of a delegation token: 7 days.
_TOKEN_LIFE_MS = 7 * 24 * 3600 * 1000
_TOKEN_LIVES = (
    "dfs.namenode.delegation.token.max-lifetime",
    "yarn.resourcemanager.delegation.token.max-lifetime",
)
#: Whether a client of a single NameNode retries a refused connection; Hadoop's default is false.
_HDFS_PATIENCE = "dfs.client.retry.policy.enabled"


def hdfs(config: Settings, hadoop: HadoopConfiguration) -> Iterator[Finding]:
    """NameNode, its state and clock, space, and whether the staging directory is writable."""
    addresses = hadoop.name_node_addresses()
    if not addresses:
        yield failed(
            "hdfs", f"fs.defaultFS in {hadoop.folder} is {hadoop.get('fs.defaultFS') or 'not set'}, no HDFS"
        )
        return
    check_answers(addresses, "HDFS's NameNode", "fs.defaultFS", hadoop, _SECONDS)
    # Our own client finds the web address by this variable.
    os.environ.setdefault("HADOOP_CONF_DIR", str(hadoop.folder))
    state, skew = _name_node(http_addresses(hadoop.get("fs.defaultFS"), hadoop.properties))
    if state.get("FSState", "Operational") != "Operational":
        yield failed(
            "hdfs",
            "the NameNode is in safe mode and refuses writes: wait until enough DataNodes have reported, or see"
            " `hdfs dfsadmin -safemode get`",
        )
        return
    if state.get("NumLiveDataNodes", 1) == 0:
        yield failed("hdfs", "no DataNode is alive: nothing can be written")
        return
    yield fine("hdfs", f"{hadoop.get('fs.defaultFS')}, {state.get('NumLiveDataNodes', '?')} DataNodes")
    remaining = int(state.get("CapacityRemaining", _LITTLE_SPACE))
    if remaining < _LITTLE_SPACE:
        yield warned(
            "hdfs", f"only {remaining / 1e9:.1f} GB are free: environments and checkpoints need room"
        )
    yield from _clock(skew)
    yield from _restarts(config, hadoop)
    yield from _staging(config)


def _restarts(config: Settings, hadoop: HadoopConfiguration) -> Iterator[Finding]:
    """Whether a NameNode that restarts would use up the attempts of a master.

    A node fetches the master's files from HDFS. If it does not wait for a NameNode, the fetch fails at once,
    which counts as an attempt, and the next begins immediately. Fifteen attempts are over in four seconds.
    """
    if not is_highly_available(config) or len(hadoop.name_node_addresses()) > 1:
        return
    if hadoop.get(_HDFS_PATIENCE, "false").lower() != "true":
        yield warned(
            "hdfs",
            "there is one NameNode, and nodes do not wait while it restarts: a master lost meanwhile uses up"
            f" all its attempts within seconds. Set {_HDFS_PATIENCE} to true for the NodeManagers (look at"
            " their own file, if it differs from the file of this machine)",
        )


def _name_node(addresses: Sequence[str]) -> tuple[Mapping[str, Any], float]:
    """The NameNode's state, and the seconds that its clock is ahead of ours."""
    clock = SystemClock()
    failures = []
    for address in addresses:
        url = f"{address}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
                now = clock.epoch_ms() / 1000
                beans = json.load(answer).get("beans") or [{}]
                date = answer.headers.get("Date")
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.UNAUTHORIZED:
                failures.append(f"{address} ({error})")
                continue
            # Its pages and WebHDFS require Kerberos; a write shows whether that admits us.
            now, beans, date = clock.epoch_ms() / 1000, [{}], error.headers.get("Date")
        except (OSError, ValueError) as error:
            failures.append(f"{address} ({error})")
            continue
        # The header has whole seconds: the middle of its second is the best estimate.
        return beans[0], parsedate_to_datetime(date).timestamp() + 0.5 - now if date else 0.0
    raise YarrowError(
        "the web server of the NameNode, through which files travel, does not answer; tried"
        f" {', '.join(failures)}: check dfs.namenode.http-address and that dfs.webhdfs.enabled is true"
    )


def _clock(skew: float) -> Iterator[Finding]:
    where = "ahead of" if skew > 0 else "behind"
    text = f"the NameNode's clock is {abs(skew):.0f} s {where} this machine's"
    if abs(skew) > _SKEW_REFUSED:
        yield failed("clock", f"{text}: set both by NTP")
    elif abs(skew) > _SKEW_NOTED:
        yield warned("clock", f"{text}: set both by NTP")
    else:
        yield fine("clock", "this machine and the NameNode agree")


def _staging(config: Settings) -> Iterator[Finding]:
    root = staging_root(config)
    probe = join(root, f"_doctor-{RandomIdFactory().hex_id()}")
    key = yarn.STAGING_DIRECTORY.key
    try:
        files = file_system_for(probe)
        try:
            with files.create(probe) as output:
                output.write(b"written by yarrow doctor")
        except BaseException:
            _remove_at_once(probe)
            raise
        files.delete(probe)
    except PermissionError as error:
        yield failed("hdfs", f"{root} cannot be written ({error}): set {key} to a directory of this user")
        return
    except (YarrowError, OSError) as error:
        yield failed("hdfs", f"{root} cannot be written: {error} ({key})")
        return
    kept = _environments(root)
    yield fine("hdfs", f"{root} can be written ({key}){kept}")


def _remove_at_once(probe: str) -> None:
    """Removes what a failed attempt may have left, without waiting a second time for HDFS to take changes."""
    former = use_hdfs_settings(msgspec.structs.replace(hdfs_settings(), retry_seconds=0.0))
    try:
        with suppress(Exception):  # the finding tells of the failure before
            file_system_for(probe).delete(probe)
    finally:
        use_hdfs_settings(former)


def _environments(root: str) -> str:
    folder = join(root, "environments")
    try:
        kept = file_system_for(folder).list(folder)
    except FileNotFoundError:
        return ""
    size = sum(entry.size for entry in kept) / 1e9
    return (
        f"; {len(kept)} files of environments are kept there, {size:.1f} GB: remove those that no running"
        " application uses"
    )


def resource_manager(config: Settings, hadoop: HadoopConfiguration) -> Iterator[Finding]:
    """ResourceManager, nodes, queue, and whether the containers fit."""
    check_answers(
        hadoop.resource_manager_addresses(),
        "YARN's ResourceManager",
        "yarn.resourcemanager.address",
        hadoop,
        _SECONDS,
    )
    web = ResourceManagerWeb.of(hadoop)
    yield from _left_on_hdfs(web, config)
    yield from _left_on_yarn(web)
    try:
        metrics, nodes = web.metrics(), web.nodes()
    except ResourceManagerWebError as error:
        if not (hadoop.is_secured and _LOGIN_WANTED in str(error)):
            raise
        yield warned(
            "yarn",
            "the pages of the ResourceManager ask for a login, which this check does not do: nodes and queues"
            " are not looked at. Applications are submitted without them",
        )
        return
    running = [node for node in nodes if node.state == "RUNNING"]
    if not running:
        yield failed("yarn", f"none of {len(nodes)} NodeManagers is RUNNING: no container can start")
        return
    yield fine(
        "yarn",
        f"{len(running)} of {len(nodes)} nodes run; {metrics.available_mb} of {metrics.total_mb} MiB and"
        f" {metrics.available_vcores} of {metrics.total_vcores} cores are free",
    )
    yield from _names(running)
    nothing = ContainerContent((), {}, "python3")
    submission = build_submission(config, "doctor", nothing, nothing, nothing)
    queues = web.leaf_queues()
    check_resources(submission, queues)
    if too_large := _too_large(submission, running):
        yield failed("yarn", too_large)
        return
    yield from _missing_labels(submission, running)
    queue = next((one for one in queues if submission.queue in (one.name, one.path)), None)
    if queue is not None:
        text = (
            f"{queue.name} takes containers of up to {queue.maximum_memory_mb} MiB and {queue.maximum_vcores} cores;"
            f" {queue.used_percent:.0f} % used, {queue.pending_containers} containers wait"
        )
        full = queue.used_percent >= 100 or queue.pending_containers > 0
        yield warned("queue", f"{text}: an application may wait") if full else fine("queue", text)
    if metrics.available_mb < submission.master.memory_mb + submission.task_executor.memory_mb:
        yield warned(
            "yarn",
            "the cluster has no room for one master and one TaskExecutor now: an application will wait",
        )


def _too_large(submission: ApplicationSubmission, running: Sequence[Node]) -> str:
    """Why no node has room for a container, even if it runs nothing else; "" if one has."""
    largest = max(node.used_mb + node.available_mb for node in running)
    for shape, key in (
        (submission.master, "jobmanager.memory.process.size"),
        (submission.task_executor, "taskmanager.memory.process.size"),
    ):
        if shape.memory_mb > largest:
            return f"{key} asks for {shape.memory_mb} MiB, and the largest node has {largest} MiB"
    return ""


def _missing_labels(submission: ApplicationSubmission, running: Sequence[Node]) -> Iterator[Finding]:
    # If TaskExecutors have the application's label, the key is the one that was set.
    labels = {
        submission.task_executor.node_label: yarn.TASK_MANAGER_NODE_LABEL.key,
        submission.node_label: yarn.APPLICATION_NODE_LABEL.key,
    }
    for label, key in labels.items():
        if label and not any(label in node.labels for node in running):
            yield failed("yarn", f"no running node has the label {label} ({key})")


def _left_on_hdfs(web: ResourceManagerWeb, config: Settings) -> Iterator[Finding]:
    """Leftovers of killed masters; HDFS has its own findings if it cannot be read."""
    try:
        left = [
            folder
            for home in ("", staging_of_spark(config))
            for folder in abandoned_folders(lambda name: web.application(name).report, home=home)
        ]
    except (YarrowError, OSError):
        return
    if left:
        shown = ", ".join(left[:_SHOWN]) + (", ..." if len(left) > _SHOWN else "")
        yield warned(
            "hdfs",
            f"{len(left)} applications have ended without removing their files: {shown}. The next deployment of this"
            " user removes them",
        )


def _left_on_yarn(web: ResourceManagerWeb) -> Iterator[Finding]:
    """Spark's applications whose own application has ended; YARN has its own findings if it cannot be read."""
    try:
        left = abandoned_spark_applications(web.living, lambda name: web.application(name).report)
    except YarrowError:
        return
    if left:
        shown = ", ".join(left[:_SHOWN]) + (", ..." if len(left) > _SHOWN else "")
        yield warned(
            "yarn",
            f"{len(left)} applications of Spark have outlived the application that has asked for them: {shown}. The"
            " next deployment of this user ends them, or"
            f" `yarn application -kill {left[0]}`",
        )


def _names(nodes: Sequence[Node]) -> Iterator[Finding]:
    """Checks that this machine resolves the nodes' names, because clients talk to REST there."""
    unknown = [
        host for host in sorted({node.address.rpartition(":")[0] for node in nodes}) if not _resolves(host)
    ]
    if unknown:
        yield failed(
            "yarn",
            f"the names of these nodes do not resolve on this machine: {', '.join(unknown[:5])}; the master's REST will"
            " not be reached from here (DNS, /etc/hosts)",
        )


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def kerberos(config: Settings, hadoop: HadoopConfiguration) -> Iterator[Finding]:
    """A ticket or keytab if the cluster requires one, and the lifetime of tokens."""
    if not hadoop.is_secured:
        yield fine(
            "kerberos",
            "the cluster does not ask for Kerberos: it believes the user name of anybody"
            " who reaches its ports",
        )
        return
    keytab, principal = config.get(security.KERBEROS_KEYTAB), config.get(security.KERBEROS_PRINCIPAL)
    if keytab and not os.path.isfile(keytab):
        yield failed("kerberos", f"{security.KERBEROS_KEYTAB.key} is {keytab}, and there is no such file")
    elif keytab and principal:
        yield fine("kerberos", f"{principal} by {keytab} ({security.KERBEROS_KEYTAB.key})")
    else:
        yield _ticket()
    lives = [int(hadoop.get(key) or _TOKEN_LIFE_MS) for key in _TOKEN_LIVES]
    yield warned(
        "kerberos",
        f"the tokens of an application end {min(lives) / 86_400_000:.1f} days after it was submitted, and"
        " nothing renews them beyond that. Stop a longer session with a savepoint before ("
        f"{', '.join(_TOKEN_LIVES)})",
    )


def _ticket() -> Finding:
    program = shutil.which("klist")
    if program is None:
        return warned("kerberos", "there is no klist on PATH, so tickets cannot be looked at")
    if subprocess.run([program, "-s"], timeout=_SECONDS, check=False).returncode:
        return failed(
            "kerberos",
            f"there is no valid ticket: run kinit, or set {security.KERBEROS_KEYTAB.key} and"
            f" {security.KERBEROS_PRINCIPAL.key}",
        )
    return fine("kerberos", "there is a valid ticket (klist)")
