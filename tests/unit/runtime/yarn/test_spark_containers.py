"""What Spark's application brings to its containers: lists of files, the interpreter among them, and tags."""

from __future__ import annotations

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import Resource
from yarrow.runtime.yarn.spark_containers import (
    ARCHIVES,
    FILES,
    JARS,
    JARS_ARCHIVE,
    interpreter_of,
    shipped,
    tags_of,
)
from yarrow.runtime.yarn.spark_executor_shape import executor_shape

START = Resource("yarrow-python", "hdfs://n:1/e/1.sh", shared=True)
ENVIRONMENT = Resource("environment.tar.gz", "hdfs://n:1/e/2.tar.gz", shared=True)
JARS_FILE = Resource("spark-jars.tar.gz", "hdfs://n:1/e/3.tar.gz", shared=True)


def test_a_packed_environment_comes_with_the_script_that_starts_it() -> None:
    found = shipped({}, (START, ENVIRONMENT, Resource("local.txt", "/data/local.txt")), (JARS_FILE,))
    assert found == {
        FILES: "hdfs://n:1/e/1.sh#yarrow-python,hdfs://n:1/e/2.tar.gz#environment.tar.gz",
        JARS_ARCHIVE: "hdfs://n:1/e/3.tar.gz",
    }
    assert interpreter_of(found, "/usr/bin/python3") == "./yarrow-python"


def test_an_archive_that_yarn_unpacks_has_its_own_interpreter() -> None:
    found = shipped({}, (Resource("environment", "hdfs://n:1/env.zip", is_archive=True),), ())
    assert found == {ARCHIVES: "hdfs://n:1/env.zip#environment"}
    assert interpreter_of(found, "/usr/bin/python3") == "environment/bin/python3"


def test_where_nothing_is_shipped_the_nodes_have_the_interpreter() -> None:
    assert shipped({}, (), ()) == {}
    assert interpreter_of({FILES: "hdfs://n:1/a.txt"}, "/usr/bin/python3") == "/usr/bin/python3"


def test_what_the_program_ships_or_names_itself_stays() -> None:
    own = {FILES: "hdfs://n:1/a.txt#a", JARS: "local:/opt/spark/jars/*"}
    found = shipped(own, (START,), (JARS_FILE,))
    assert found == {FILES: "hdfs://n:1/a.txt#a,hdfs://n:1/e/1.sh#yarrow-python"}
    assert shipped({**own, **found}, (START,), (JARS_FILE,)) == {}


def test_tags_name_our_application_the_job_and_the_driver() -> None:
    assert tags_of("application_1_2", "ab", "SparkDriver-7") == (
        "yarrow-spark",
        "application_1_2",
        "yarrow-job-ab",
        "yarrow-sparkdriver-7",
    )
    assert tags_of("", "ab", "d")[:2] == ("yarrow-spark", "yarrow-job-ab")


def test_an_executor_has_room_for_java_and_a_python_process_for_each_core() -> None:
    shape = executor_shape(Settings({"spark.executor.memory": "8g", "taskmanager.numberOfTaskSlots": "3"}))
    assert (shape.cores, shape.heap_mb, shape.overhead_mb) == (3, 8192, 820 + 3 * 512)
    shape = executor_shape(Settings({"spark.executor.memory": "512m", "spark.executor.cores": "1"}))
    assert shape.container.memory_mb == 512 + 384 + 512
