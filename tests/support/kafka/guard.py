"""Takes a Kafka down when the process that tests with it ends, however it ends.

Owner: a process of its own, started by the one that it watches: `python -m tests.support.kafka.guard PID FOLDER`.
"""

from __future__ import annotations

import sys

from tests.support.kafka.cluster import KafkaCluster
from tests.support.services.watched_process import wait_until_gone


def main(pid: int, folder: str) -> None:
    """Waits for the end of the process `pid`, then takes down the cluster in `folder`."""
    wait_until_gone(pid)
    KafkaCluster.at(folder).down()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
