"""Settings of a driver's Spark whose executors run in an application of their own on YARN. Pure.

Owner: none. The application has our queue, labels, access lists and tags, and its containers have our Python. It gets
no secret: Spark makes its own, and YARN carries it in the containers' tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from yarrow.runtime.config.options import yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.spark_options import SET_ON_YARN, refuse_other_values, spark_keys
from yarrow.runtime.yarn.spark_containers import ARCHIVES, FILES, JARS, JARS_ARCHIVE, interpreter_of
from yarrow.runtime.yarn.spark_executor_shape import OVERHEAD_KEYS, executor_shape

_QUEUE: Final = "default"
_PARALLELISM: Final = "spark.default.parallelism"
_INSTANCES: Final = "spark.executor.instances"
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
#: The variables of containers that run user code.
_VARIABLES: Final = "containerized.taskmanager.env."


@dataclass(frozen=True, slots=True)
class SparkOnYarn:
    """What an application of Spark on YARN is given besides the configuration."""

    #: Folder of Hadoop's configuration.
    hadoop: Path
    #: Folder on HDFS for the files of the application; Spark removes them at its end.
    staging: str
    tags: tuple[str, ...]
    #: `host:port` of YARN's ResourceManagers.
    resource_managers: tuple[str, ...]
    #: The driver's own interpreter, and the jars of its Spark.
    interpreter: str
    jars: Path
    #: Spark's keys for a login by keytab; none where there is none, or tokens serve.
    login: Mapping[str, str] = field(default_factory=dict)

    def executor_interpreter(self, config: Settings) -> str:
        """The interpreter of executors, in their containers."""
        return interpreter_of(spark_keys(config), self.interpreter)


def yarn_settings(config: Settings, spark: SparkOnYarn) -> dict[str, str]:
    """The keys for YARN; those which the program may set itself are left out where it does.

    Raises InvalidOptionValue for a key that only the engine may set.
    """
    own = spark_keys(config)
    refuse_other_values(own, SET_ON_YARN)
    defaults = {
        "spark.yarn.queue": config.get(yarn.APPLICATION_QUEUE) or _QUEUE,
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        **_sizes(config, own),
        **_labels(config),
        **_access(config),
        **{f"spark.executorEnv.{name}": value for name, value in config.below(_VARIABLES).items()},
        **_jars(own, spark),
        **spark.login,
    }
    tags = [
        *spark.tags,
        *(config.get(yarn.TAGS) or ()),
        *filter(None, own.get("spark.yarn.tags", "").split(",")),
    ]
    return {
        **{key: value for key, value in defaults.items() if key not in own},
        **SET_ON_YARN,
        "spark.dynamicAllocation.initialExecutors": _first_executors(own),
        "spark.yarn.stagingDir": spark.staging,
        "spark.yarn.tags": ",".join(dict.fromkeys(tags)),
        "spark.pyspark.python": spark.executor_interpreter(config),
    }


def _first_executors(own: Mapping[str, str]) -> str:
    """At least one: a session begins with its first executor, and Spark would ask for none before a task waits."""
    asked = [own.get(f"spark.dynamicAllocation.{key}", "") for key in ("initialExecutors", "minExecutors")]
    return str(max([1, *(int(number) for number in asked if number.isdecimal())]))


def _sizes(config: Settings, own: Mapping[str, str]) -> dict[str, str]:
    """Executors enough for all subtasks of the widest vertex at a time."""
    shape = executor_shape(config)
    found = {"spark.executor.cores": str(shape.cores), "spark.executor.memory": f"{shape.heap_mb}m"}
    if not any(f"spark.{key}" in own for key in OVERHEAD_KEYS):
        found["spark.executor.memoryOverhead"] = f"{shape.overhead_mb}m"
    parallelism = own.get(_PARALLELISM, "")
    if parallelism.isdecimal() and own.get(_DYNAMIC, "false") != "true":
        found[_INSTANCES] = str(max(1, -(-int(parallelism) // shape.cores)))
    return found


def _labels(config: Settings) -> dict[str, str]:
    labels = {
        "spark.yarn.am.nodeLabelExpression": config.get(yarn.APPLICATION_NODE_LABEL),
        "spark.yarn.executor.nodeLabelExpression": config.get(yarn.TASK_MANAGER_NODE_LABEL),
    }
    return {key: label for key, label in labels.items() if label}


def _access(config: Settings) -> dict[str, str]:
    """Whoever may see or change our application may do so with Spark's."""
    found: dict[str, str] = {}
    for option, kind in ((yarn.VIEW_ACLS, "spark.ui.view.acls"), (yarn.MODIFY_ACLS, "spark.modify.acls")):
        users, _, groups = (config.get(option) or "").strip().partition(" ")
        found |= {kind: users, f"{kind}.groups": groups}
    return {key: names for key, names in found.items() if names}


def _jars(own: Mapping[str, str], spark: SparkOnYarn) -> dict[str, str]:
    """The jars of the nodes' own PySpark, where the nodes have our Python too."""
    shipped = {JARS, JARS_ARCHIVE, FILES, ARCHIVES} & set(own)
    return {} if shipped else {JARS: f"local:{spark.jars}/*"}
