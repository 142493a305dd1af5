"""What Spark is told about its own application on YARN."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from yarrow.container.batch.spark.settings import SparkFolders, java_arguments, spark_settings
from yarrow.container.batch.spark.yarn_settings import SparkOnYarn, yarn_settings
from yarrow.container.batch.spark.yarn_start import addresses_for
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import InvalidOptionValue

FOLDERS = SparkFolders(Path("/work"))
SPARK = SparkOnYarn(
    hadoop=Path("/etc/hadoop"),
    staging="hdfs://n:1/user/joe/.skein/application_1_2",
    tags=("yarrow-spark", "application_1_2", "yarrow-driver-1"),
    resource_managers=("127.0.0.1:8032",),
    interpreter="/opt/python",
    jars=Path("/opt/pyspark/jars"),
)
SHIPPED = {
    "spark.yarn.dist.files": "hdfs://n:1/e/1.sh#yarrow-python,hdfs://n:1/e/2.tar.gz#environment.tar.gz",
    "spark.yarn.archive": "hdfs://n:1/e/3.tar.gz",
}


def told(**values: str) -> dict[str, str]:
    given = {key.replace("__", "."): value for key, value in values.items()}
    return yarn_settings(Settings({"spark.master": "yarn", **given}), SPARK)


def test_the_application_is_ours_by_queue_tags_and_staging_folder() -> None:
    found = yarn_settings(
        Settings({"yarn.application.queue": "night", "yarn.tags": "team-a", "spark.yarn.tags": "mine"}), SPARK
    )
    assert found["spark.yarn.queue"] == "night"
    assert found["spark.yarn.tags"] == "yarrow-spark,application_1_2,yarrow-driver-1,team-a,mine"
    assert found["spark.yarn.stagingDir"] == SPARK.staging
    assert found["spark.yarn.maxAppAttempts"] == "1"
    assert told()["spark.yarn.queue"] == "default"


def test_executors_get_the_environment_of_our_containers() -> None:
    found = yarn_settings(Settings(SHIPPED), SPARK)
    assert found["spark.pyspark.python"] == "./yarrow-python"
    assert "spark.yarn.jars" not in found


def test_nodes_with_our_interpreter_have_its_jars() -> None:
    found = told()
    assert found["spark.pyspark.python"] == "/opt/python"
    assert found["spark.yarn.jars"] == "local:/opt/pyspark/jars/*"


def test_there_is_an_executor_for_each_subtask_of_the_widest_vertex() -> None:
    settings = {"spark.default.parallelism": "5", "spark.executor.cores": "2", "spark.executor.memory": "2g"}
    found = yarn_settings(Settings(settings), SPARK)
    assert found["spark.executor.instances"] == "3"
    assert "spark.executor.memory" not in found
    assert found["spark.executor.memoryOverhead"] == f"{384 + 2 * 512}m"
    own = yarn_settings(
        Settings({**settings, "spark.executor.instances": "7", "spark.executor.memoryOverhead": "1g"}), SPARK
    )
    assert "spark.executor.instances" not in own and "spark.executor.memoryOverhead" not in own


def test_dynamic_allocation_begins_with_an_executor_and_needs_no_service_of_the_nodes() -> None:
    found = yarn_settings(
        Settings({"spark.dynamicAllocation.enabled": "true", "spark.default.parallelism": "5"}), SPARK
    )
    assert "spark.executor.instances" not in found
    assert found["spark.dynamicAllocation.initialExecutors"] == "1"
    assert found["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"


def test_variables_labels_and_access_lists_are_passed_on() -> None:
    found = yarn_settings(
        Settings(
            {
                "containerized.taskmanager.env.LANG": "de_DE",
                "yarn.application.node-label": "fast",
                "yarn.view.acls": "ann,bob team",
                "yarn.modify.acls": "ann team",
            }
        ),
        SPARK,
    )
    assert found["spark.executorEnv.LANG"] == "de_DE"
    assert found["spark.yarn.am.nodeLabelExpression"] == "fast"
    assert found["spark.yarn.executor.nodeLabelExpression"] == "fast"
    assert (found["spark.ui.view.acls"], found["spark.ui.view.acls.groups"]) == ("ann,bob", "team")
    assert found["spark.modify.acls.groups"] == "team" and found["spark.modify.acls"] == "ann"


def test_an_application_without_a_container_of_its_own_is_refused_by_name() -> None:
    with pytest.raises(InvalidOptionValue, match=r"unmanagedAM.*the engine sets it to 'false'"):
        told(spark__yarn__unmanagedAM__enabled="true")


def test_the_secret_is_left_to_yarn_and_the_ports_to_the_network() -> None:
    found = spark_settings(
        Settings({"spark.master": "yarn", **SHIPPED}), 2, FOLDERS, ("node7", "0.0.0.0"), SPARK
    )
    assert found["spark.master"] == "yarn"
    assert found["spark.authenticate"] == found["spark.network.crypto.enabled"] == "true"
    assert "spark.authenticate.secret" not in found
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("node7", "0.0.0.0")
    assert found["spark.pyspark.python"] == "./yarrow-python"


def test_java_finds_hadoops_configuration() -> None:
    arguments = java_arguments(Settings({}), Path("/jars"), Path("/log/spark.log"), FOLDERS, SPARK.hadoop)
    assert arguments[:2] == ["-cp", "/jars/*:/etc/hadoop"]


def test_a_driver_on_loopback_takes_the_address_by_which_it_reaches_yarn() -> None:
    assert addresses_for(SPARK, "127.0.0.1", "127.0.0.1") == ("127.0.0.1", "127.0.0.1")
    assert addresses_for(SPARK, "node7", "0.0.0.0") == ("node7", "0.0.0.0")
    assert addresses_for(None, "127.0.0.1", "127.0.0.1") == ("127.0.0.1", "127.0.0.1")
    unknown = dataclasses.replace(SPARK, resource_managers=("no.such.host.invalid:1",))
    assert addresses_for(unknown, "localhost", "localhost") == ("localhost", "localhost")


@pytest.mark.parametrize(
    "own, first",
    [({"minExecutors": "0"}, "1"), ({"initialExecutors": "0"}, "1"), ({"minExecutors": "3"}, "3")],
)
def test_a_session_that_waits_for_its_first_executor_asks_for_one(own: dict[str, str], first: str) -> None:
    values = {f"spark.dynamicAllocation.{key}": value for key, value in own.items()}
    found = yarn_settings(Settings({"spark.dynamicAllocation.enabled": "true", **values}), SPARK)
    assert found["spark.dynamicAllocation.initialExecutors"] == first
