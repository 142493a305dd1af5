"""The command line of `scripts/hadoop`: brings a cluster up and down, shows it, and breaks parts of it.

Owner: a process of its own. Results go to standard output, progress and errors to standard error; the exit
status is 1 for an error, and for `status` when something is missing.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import DAEMONS, KDC, default_directory
from tests.support.services.errors import ServiceError
from yarrow.runtime.common.clock import SystemClock

_DAEMON_NAMES = [daemon.name for daemon in (KDC, *DAEMONS)]


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    cluster = HadoopCluster.at(options.directory, getattr(options, "kerberos", False))
    try:
        return int(options.command(cluster, options))
    except ServiceError as error:
        print(f"scripts/hadoop: {error}", file=sys.stderr)
        return 1


def up(cluster: HadoopCluster, options: argparse.Namespace) -> int:
    """Brings the cluster up, or says that it is."""
    clock = SystemClock()
    began = clock.monotonic()
    started = cluster.up()
    took = f"up after {clock.monotonic() - began:.1f} s" if started else "runs already"
    print(
        f"Hadoop in {cluster.directory} {took}: YARN {cluster.resource_manager_web}, HDFS {cluster.hdfs_url},"
    )
    print(f'ZooKeeper {cluster.zookeeper_quorum}. For a shell: eval "$(scripts/hadoop env)"')
    return 0


def down(cluster: HadoopCluster, options: argparse.Namespace) -> int:
    """Stops the cluster."""
    stopped = cluster.down(keep=options.keep)
    print(f"Hadoop in {cluster.directory} {'is down' if stopped else 'was not there'}.")
    return 0


def status(cluster: HadoopCluster, options: argparse.Namespace) -> int:
    """Prints a line a daemon."""
    found = cluster.status()
    if not found:
        print(f"No cluster is in {cluster.directory}.")
        return 1
    print(f"{'daemon':<16} {'pid':>8}  {'state':<12} ports")
    for daemon in found:
        ports = " ".join(f"{use}={port}" for use, port in daemon.ports.items())
        print(f"{daemon.name:<16} {daemon.pid or '-':>8}  {daemon.state:<12} {ports}")
    return 0 if all(daemon.serving for daemon in found) else 1


def kill(cluster: HadoopCluster, options: argparse.Namespace) -> int:
    """Sends a signal to one daemon."""
    cluster.kill(options.what, signal.Signals[f"SIG{options.signal}"])
    return 0


def start(cluster: HadoopCluster, options: argparse.Namespace) -> int:
    """Starts one daemon again and waits until it serves."""
    cluster.start(options.what)
    cluster.wait_until_ready(options.what)
    return 0


def env(cluster: HadoopCluster, options: argparse.Namespace) -> int:
    """Prints lines for a shell's eval."""
    variables = {
        **cluster.environment(),
        "YARROW_HADOOP_DIRECTORY": str(cluster.directory),
        "YARROW_HADOOP_HDFS": cluster.hdfs_url,
        "YARROW_HADOOP_ZOOKEEPER": cluster.zookeeper_quorum,
    }
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--directory", default=None, help=f"folder of the cluster (default {default_directory()})"
    )
    parser = argparse.ArgumentParser(prog="scripts/hadoop", description="A real Hadoop on loopback.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (up, down, status, kill, start, env):
        sub = commands.add_parser(command.__name__, help=command.__doc__, parents=[common])
        sub.set_defaults(command=command)
        if command is up:
            sub.add_argument("--kerberos", action="store_true", help="secured, with a KDC of its own")
        if command is down:
            sub.add_argument("--keep", action="store_true", help="leave the folder with data and logs")
        if command in (kill, start):
            sub.add_argument("what", choices=_DAEMON_NAMES)
        if command is kill:
            sub.add_argument("--signal", default="KILL", choices=["KILL", "STOP", "CONT", "TERM"])
    return parser


if __name__ == "__main__":
    sys.exit(main())
