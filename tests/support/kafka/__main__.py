"""The command line of `scripts/kafka`: brings a Kafka up and down, and shows it.

Owner: a process of its own. Results go to standard output, progress and errors to standard error; the exit
status is 1 for an error, and for `status` when something is missing.
"""

from __future__ import annotations

import argparse
import signal
import sys

from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.layout import default_directory, node_names
from tests.support.services.errors import ServiceError
from yarrow.runtime.common.clock import SystemClock


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    cluster = KafkaCluster.at(options.directory, getattr(options, "nodes", 1))
    try:
        return int(options.command(cluster, options))
    except ServiceError as error:
        print(f"scripts/kafka: {error}", file=sys.stderr)
        return 1


def up(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    """Brings Kafka up, or says that it is."""
    clock = SystemClock()
    began = clock.monotonic()
    started = cluster.up()
    took = f"up after {clock.monotonic() - began:.1f} s" if started else "runs already"
    print(f"Kafka in {cluster.directory} {took}: bootstrap servers {cluster.bootstrap_servers}")
    return 0


def down(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    """Stops Kafka."""
    stopped = cluster.down(keep=options.keep)
    print(f"Kafka in {cluster.directory} {'is down' if stopped else 'was not there'}.")
    return 0


def status(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    """Prints a line a node."""
    found = cluster.status()
    if not found:
        print(f"No Kafka is in {cluster.directory}.")
        return 1
    print(f"{'node':<8} {'pid':>8}  {'state':<12} ports")
    for node in found:
        ports = " ".join(f"{use}={port}" for use, port in node.ports.items())
        print(f"{node.name:<8} {node.pid or '-':>8}  {node.state:<12} {ports}")
    return 0 if all(node.serving for node in found) else 1


def kill(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    """Sends a signal to one node."""
    cluster.kill(options.what, signal.Signals[f"SIG{options.signal}"])
    return 0


def start(cluster: KafkaCluster, options: argparse.Namespace) -> int:
    """Starts one node again and waits until it serves."""
    cluster.start(options.what)
    cluster.wait_until_ready(options.what)
    return 0


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--directory", default=None, help=f"folder of the Kafka (default {default_directory()})"
    )
    parser = argparse.ArgumentParser(prog="scripts/kafka", description="A real Kafka on loopback.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (up, down, status, kill, start):
        sub = commands.add_parser(command.__name__, help=command.__doc__, parents=[common])
        sub.set_defaults(command=command)
        if command is up:
            sub.add_argument("--nodes", type=int, default=1, choices=[1, 3], help="1 (default) or 3")
        if command is down:
            sub.add_argument("--keep", action="store_true", help="leave the folder with data and logs")
        if command in (kill, start):
            sub.add_argument("what", choices=node_names(3))
        if command is kill:
            sub.add_argument("--signal", default="KILL", choices=["KILL", "STOP", "CONT", "TERM"])
    return parser


if __name__ == "__main__":
    sys.exit(main())
