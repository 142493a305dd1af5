"""What Spark and its JVM are told: the engine's own settings hold, all others of a program are passed on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from yarrow.container.batch.spark.settings import (
    FIXED,
    SparkFolders,
    has_executors,
    java_arguments,
    spark_master,
    spark_settings,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import InvalidOptionValue

FOLDERS = SparkFolders(Path("/work"))


def settings(**values: str) -> Settings:
    return Settings({f"spark.{key.replace('_', '.')}": value for key, value in values.items()}, "the test")


def test_a_program_sets_what_the_engine_does_not() -> None:
    found = spark_settings(settings(shuffle_compress="false", ui_enabled="true"), 3, FOLDERS)
    assert found["spark.shuffle.compress"] == "false"
    # Its pages start apart from the session.
    assert found["spark.ui.enabled"] == "false"
    assert found["spark.master"] == "local[3]"
    assert found["spark.pyspark.python"] == sys.executable
    assert found["spark.local.dir"] == "/work/spark"
    # Hadoop's configuration may name another file system for plain paths, which nobody else needs.
    assert found["spark.sql.warehouse.dir"] == "file:///work/java"
    assert found.items() >= FIXED.items()


def test_what_keeps_a_job_private_cannot_be_changed() -> None:
    for key in ("authenticate", "network_crypto_enabled", "driver_host"):
        with pytest.raises(InvalidOptionValue, match="the engine sets it to"):
            spark_settings(settings(**{key: "other"}), 1, FOLDERS)
    assert spark_settings(settings(authenticate="true"), 1, FOLDERS)["spark.authenticate"] == "true"


def test_properties_of_hadoop_are_passed_on_but_no_secret() -> None:
    config = Settings({"flink.hadoop.dfs.replication": "2", "flink.hadoop.fs.x.secret.key": "hidden"})
    found = spark_settings(config, 1, FOLDERS)
    assert found["spark.hadoop.dfs.replication"] == "2"
    assert "hidden" not in found.values()


@pytest.mark.parametrize(
    ("master", "executors"),
    [
        ("local", False),
        ("local[4]", False),
        ("local[*]", False),
        ("local-cluster[2,1,1024]", True),
        ("spark://a:7077,b:7077", True),
    ],
)
def test_masters(master: str, executors: bool) -> None:
    assert spark_master(settings(master=master), 2) == master
    assert has_executors(master) is executors


@pytest.mark.parametrize(
    "master", ["mesos://host", "spark://host", "local[4,2]", "local-cluster[2]", "k8s://host"]
)
def test_other_masters_are_refused_by_name(master: str) -> None:
    with pytest.raises(InvalidOptionValue, match="Yarrow knows no such master of Spark"):
        spark_master(settings(master=master), 2)


def test_executors_reach_the_driver_at_its_own_address() -> None:
    found = spark_settings(settings(master="spark://a:7077"), 1, FOLDERS, ("here.example", "10.0.0.1"))
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("here.example", "10.0.0.1")
    assert found["spark.authenticate"] == found["spark.network.crypto.enabled"] == "true"
    assert "spark.authenticate.secret" not in found, "that of the user's cluster is the user's"
    same_host = spark_settings(
        settings(master="local-cluster[1,1,512]"), 1, FOLDERS, ("here.example", "10.0.0.1")
    )
    assert same_host["spark.driver.host"] == "127.0.0.1"
    assert len(same_host["spark.authenticate.secret"]) == 64


def test_a_program_has_the_last_word_on_the_jvm() -> None:
    config = settings(driver_extraJavaOptions="-XX:+UseG1GC -Dx=y", driver_memory="2g")
    found = java_arguments(config, Path("/jars"), Path("/logs/a.log"), FOLDERS)
    main = found.index("org.apache.spark.deploy.SparkSubmit")
    assert found[main - 2 : main] == ["-XX:+UseG1GC", "-Dx=y"]
    # Java refuses two collectors.
    assert "-XX:+UseSerialGC" not in found
    assert "-XX:+UseSerialGC" in java_arguments(settings(), Path("/jars"), Path("/logs/a.log"), FOLDERS)
    assert "-Xmx2048m" in found


def test_the_second_compiler_and_all_cores_for_garbage_are_for_much_data_in_sql() -> None:
    def arguments(**values: str) -> list[str]:
        config = Settings(values, "the test")
        return java_arguments(config, Path("/jars"), Path("/logs/a.log"), FOLDERS)

    full = {"execution.batch.spark.full-compiler": "true"}
    assert "-XX:TieredStopAtLevel=1" in arguments() and "-XX:+UseG1GC" not in arguments()
    assert "-XX:TieredStopAtLevel=1" not in arguments(**full)
    assert [each for each in arguments(**full) if each.endswith("GC")] == ["-XX:+UseG1GC"]
    chosen = arguments(**full, **{"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"})
    assert [each for each in chosen if each.endswith("GC")] == ["-XX:+UseSerialGC"]
