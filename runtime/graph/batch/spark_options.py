"""Keys of Spark that the engine alone sets, and the masters of Spark that it uses: what a job may ask for. Pure.

Owner: any thread. The client asks before anything starts, and the SparkDriver once more, since a cluster has keys of
its own. Must not know where the driver runs: addresses and interpreters are the driver's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from yarrow.runtime.config.options import batch
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import InvalidOptionValue

#: What keeps a job private, and what the stages rely on.
SET_BY_ENGINE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
        # Partitions are those of the plan: nothing may join or split them.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.useLargeVarTypes": "false",
        # The SparkDriver is Spark's driver, wherever the executors are.
        "spark.submit.deployMode": "client",
    }
)
#: Keys that a program cannot change on YARN, with their values.
SET_ON_YARN: Final[Mapping[str, str]] = MappingProxyType(
    {
        # The restart strategy decides about another attempt, which has an application of its own.
        "spark.yarn.maxAppAttempts": "1",
        # Its ApplicationMaster ends with the driver. One without a container would be RUNNING until YARN misses it.
        "spark.yarn.unmanagedAM.enabled": "false",
    }
)
LOCAL: Final = re.compile(r"local(\[(\d+|\*)\])?")
LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\d+,\d+,\d+\]")
_STANDALONE: Final = re.compile(r"spark://[^\s,]+:\d+(,[^\s,]+:\d+)*")


def check_spark_options(config: Settings) -> None:
    """Raises InvalidOptionValue for a key that the engine alone sets, and for a master that Yarrow does not use."""
    master = chosen_master(config)
    own = spark_keys(config)
    refuse_other_values(own, SET_BY_ENGINE)
    if master == batch.YARN:
        refuse_other_values(own, SET_ON_YARN)


def spark_keys(config: Settings) -> dict[str, str]:
    """All keys that begin with `spark.`, as Spark knows them."""
    return {f"spark.{key}": value for key, value in config.below("spark.").items()}


def refuse_other_values(own: Mapping[str, str], fixed: Mapping[str, str]) -> None:
    """Raises InvalidOptionValue for a key of `own` whose value differs from that in `fixed`."""
    for key, value in fixed.items():
        if own.get(key, value) != value:
            reason = f"the engine sets it to {value!r}"
            raise InvalidOptionValue(key, repr(own[key]), reason, f"{value!r} or no such key", value)


def chosen_master(config: Settings) -> str | None:
    """`spark.master`, None = the job names none. Raises InvalidOptionValue for one that Yarrow does not use."""
    master = config.get(batch.SPARK_MASTER)
    if master is None or master == batch.YARN:
        return master
    if not any(form.fullmatch(master) for form in (LOCAL, LOCAL_CLUSTER, _STANDALONE)):
        raise InvalidOptionValue(
            batch.SPARK_MASTER.key,
            repr(master),
            "Yarrow knows no such master of Spark",
            "local[n] with n tasks at a time, local-cluster[executors,cores,megabytes], spark://host:port, or yarn",
            "local[4]",
        )
    return master
