"""Plans of connectors by the hundred: topic to topic on a Kafka of its own, for each guarantee.

Owner: the main thread of `bench/soak --connectors`. A failure is printed with the command that makes its plan again.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from bench.soak_results import ROOT
from tests.kafka.kafka_under_test import PARTITIONS, kafka_topics
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.run_clusters import cluster_of_run
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.connectors import check_connector, make_connector_plan

#: Of each guarantee.
PLANS = 500
#: Plans between two lines of progress.
_REPORTED = 25
_numbers = itertools.count()


def run_plan(number: int, guarantee: DeliveryGuarantee, kafka: KafkaCluster, cluster: MiniCluster) -> None:
    """One plan with new topics. Raises ConnectorCheckError."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    made: list[str] = []

    def new_topic(partitions: int = PARTITIONS) -> str:
        made.append(f"soak-{os.getpid()}-{next(_numbers)}")
        kafka.create_topic(made[-1], partitions)
        return made[-1]

    try:
        with kafka_topics(kafka, new_topic, guarantee) as topics:
            plan = make_connector_plan(number, guarantee, topics.outages())
            check_connector(topics, plan, cluster, folder)
    finally:
        kafka.bring_back()
        for topic in made:
            kafka.delete_topic(topic)
        shutil.rmtree(folder, ignore_errors=True)


def run_connectors(plans: int, first: int, guarantees: Sequence[DeliveryGuarantee]) -> int:
    """So many plans of each guarantee; the number of those that failed."""
    failed: list[str] = []
    done = 0
    configuration = {"resourcemanager.taskmanager-timeout": "1 s"}
    # Workers load the connector from the tests.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with cluster_of_run() as kafka, mini_cluster(2, 2, configuration=configuration) as cluster:
        for number, guarantee in itertools.product(range(first, first + plans), guarantees):
            try:
                run_plan(number, guarantee, kafka, cluster)
            except Exception:  # whatever it is, the next plan goes on
                traceback.print_exc()
                failed.append(f"bench/soak --connectors 1 --first-seed {number} --guarantee {guarantee.name}")
                print(f"FAILED: {failed[-1]}", flush=True)
            done += 1
            if done % _REPORTED == 0:
                print(f"{done} plans of connectors, {len(failed)} failed", flush=True)
    print(f"{done} plans of connectors, {len(failed)} failed", flush=True)
    for command in failed:
        print(command)
    return len(failed)
