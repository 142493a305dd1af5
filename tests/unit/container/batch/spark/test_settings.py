"""What Spark and its JVM are told: the engine's own settings hold, all others of a program are passed on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from yarrow.container.batch.spark.settings import (
    FIXED,
    SparkFolders,
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
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.master"] == "local[3]"
    assert found["spark.pyspark.python"] == sys.executable
    assert found["spark.local.dir"] == "/work/spark"
    assert found.items() >= FIXED.items()


def test_what_keeps_a_job_private_cannot_be_changed() -> None:
    for key in ("authenticate", "network_crypto_enabled", "driver_host"):
        with pytest.raises(InvalidOptionValue, match="the engine sets it to"):
            spark_settings(settings(**{key: "other"}), 1, FOLDERS)
    assert spark_settings(settings(authenticate="true"), 1, FOLDERS)["spark.authenticate"] == "true"


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]"])
def test_masters_on_this_host(master: str) -> None:
    assert spark_master(settings(master=master), 2) == master


@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "local[4,2]", "k8s://host"])
def test_other_masters_are_refused_by_name(master: str) -> None:
    with pytest.raises(InvalidOptionValue, match="tasks of batch mode run in the driver's JVM"):
        spark_master(settings(master=master), 2)


def test_a_program_has_the_last_word_on_the_jvm() -> None:
    config = settings(driver_extraJavaOptions="-XX:+UseG1GC -Dx=y", driver_memory="2g")
    found = java_arguments(config, Path("/jars"), Path("/logs/a.log"), FOLDERS)
    main = found.index("org.apache.spark.deploy.SparkSubmit")
    assert found[main - 2 : main] == ["-XX:+UseG1GC", "-Dx=y"]
    # Java refuses two collectors.
    assert "-XX:+UseSerialGC" not in found
    assert "-XX:+UseSerialGC" in java_arguments(settings(), Path("/jars"), Path("/logs/a.log"), FOLDERS)
    assert "-Xmx2048m" in found


def test_the_second_compiler_of_java_is_for_much_data_in_sql() -> None:
    def arguments(**values: str) -> list[str]:
        config = Settings(values, "the test")
        return java_arguments(config, Path("/jars"), Path("/logs/a.log"), FOLDERS)

    assert "-XX:TieredStopAtLevel=1" in arguments()
    assert "-XX:TieredStopAtLevel=1" not in arguments(**{"execution.batch.spark.full-compiler": "true"})
