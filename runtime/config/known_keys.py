"""The existing keys: Yarrow's options, Flink's keys, and families of keys with a free ending.

Owner: any thread; read once, immutable. Flink's names come from flink_keys.json, which states its sources.
Nothing here looks at values. A key is one of: an option, a member of a family, a Flink key without meaning
here, unknown.
"""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

import msgspec

from yarrow.runtime.config.options import ALL_OPTIONS, OPTION_OF_NAME
from yarrow.runtime.config.values.option import EngineOption


class KeyFamily(msgspec.Struct, frozen=True):
    """Keys that begin with `prefix` and end as the user likes."""

    prefix: str
    doc: str
    #: False for families of Flink that do nothing here: their keys are accepted with a warning.
    meaningful: bool = True


class KeyKind(enum.Enum):
    """The role of a key in Yarrow."""

    OPTION = "option"
    FAMILY = "family"
    FLINK_ONLY = "flink only"
    UNKNOWN = "unknown"


FAMILIES: Final = (
    KeyFamily("metrics.reporter.", "Settings of the metrics reporter named in the third part of the key."),
    KeyFamily("metrics.scope.variables.", "Labels added to or left out of every metric."),
    KeyFamily("flink.hadoop.", "Passed to Hadoop clients under the rest of the key."),
    KeyFamily("flink.yarn.", "Passed to YARN clients under the rest of the key."),
    KeyFamily("containerized.taskmanager.env.", "Environment variables of TaskExecutors in containers."),
    KeyFamily("containerized.master.env.", "Environment variables of the master process in a container."),
    KeyFamily("spark.", "Passed to Spark in batch mode, as `spark.executor.memory`."),
    KeyFamily("env.java.opts.", "Options of Flink's JVMs.", meaningful=False),
    KeyFamily("external-resource.", "Flink's external resources, such as GPUs.", meaningful=False),
    KeyFamily(
        "security.delegation.token.provider.", "Flink's providers of delegation tokens.", meaningful=False
    ),
    KeyFamily(
        "security.delegation.token.receiver.", "Flink's receivers of delegation tokens.", meaningful=False
    ),
    KeyFamily("traces.reporter.", "Flink's trace reporters.", meaningful=False),
    KeyFamily("events.reporter.", "Flink's event reporters.", meaningful=False),
    KeyFamily("kubernetes.", "Flink on Kubernetes.", meaningful=False),
    KeyFamily("mesos.", "Flink on Mesos.", meaningful=False),
    KeyFamily("python.job-options.", "Flink's own map of Python job options.", meaningful=False),
    KeyFamily("python.logging.level.overrides.", "Flink's log levels of Python workers.", meaningful=False),
    KeyFamily("s3.", "Flink's S3 file systems.", meaningful=False),
    KeyFamily("s3a.", "Flink's S3 file systems.", meaningful=False),
    KeyFamily("s3p.", "Flink's S3 file systems.", meaningful=False),
    KeyFamily("presto.s3.", "Flink's S3 file systems.", meaningful=False),
    KeyFamily("fs.s3.", "Flink's S3 file systems.", meaningful=False),
    KeyFamily("fs.s3a.", "Flink's S3 file systems.", meaningful=False),
    KeyFamily("fs.oss.", "Flink's Aliyun OSS file system.", meaningful=False),
    KeyFamily("fs.azure.", "Flink's Azure file systems.", meaningful=False),
    KeyFamily("fs.gs.", "Flink's Google file system.", meaningful=False),
    KeyFamily("gs.", "Flink's Google file system.", meaningful=False),
    KeyFamily("fs.hdfs.", "Flink's old names of Hadoop's configuration.", meaningful=False),
)

_NO_JARS: Final = (
    "nothing of a job runs in Java, so no jar is needed. Kafka's connector comes with pip install 'yarrow[kafka]'. "
    "Install what a function imports, or ship it by add_python_file"
)
_NO_JAVA_SERIALIZERS: Final = (
    "it serializes objects of Java: values are written by their declared types, or pickled"
)

#: Why keys that programs set by PyFlink's methods do nothing here.
WITHOUT_EFFECT: Final = {
    "pipeline.classpaths": _NO_JARS,
    "pipeline.closure-cleaner-level": "it cleans closures of Java: functions are pickled as Python has them",
    "pipeline.force-avro": _NO_JAVA_SERIALIZERS,
    "pipeline.force-kryo": _NO_JAVA_SERIALIZERS,
    "pipeline.jars": _NO_JARS,
    "state.changelog.enabled": "state has no log of changes: for small checkpoints set state.backend.type: rocksdb "
    "and execution.checkpointing.incremental: true",
}

_OPTION_NAMES: Final = frozenset(name for option in ALL_OPTIONS for name in option.names)


@functools.cache
def flink_keys() -> frozenset[str]:
    """The names of Flink's keys."""
    text = resources.files("yarrow.runtime.config").joinpath("flink_keys.json").read_text(encoding="utf-8")
    return frozenset(json.loads(text)["keys"])


def family_of(key: str) -> KeyFamily | None:
    """The family a key belongs to; the longest prefix wins, and the bare prefix belongs to none."""
    found = [family for family in FAMILIES if key.startswith(family.prefix) and key != family.prefix]
    return max(found, key=lambda family: len(family.prefix), default=None)


def map_option_of(key: str) -> EngineOption[Any] | None:
    """The map option of which `key` is one entry: `pipeline.global-job-parameters.owner` and its like."""
    stem = key
    while "." in stem:
        stem = stem.rpartition(".")[0]
        option = OPTION_OF_NAME.get(stem)
        if option is not None and option.type.is_map:
            return option
    return None


def kind_of(key: str) -> KeyKind:
    """The kind of a key."""
    if key in _OPTION_NAMES or map_option_of(key) is not None:
        return KeyKind.OPTION
    family = family_of(key)
    if family is not None and family.meaningful:
        return KeyKind.FAMILY
    if family is not None or key in flink_keys():
        return KeyKind.FLINK_ONLY
    return KeyKind.UNKNOWN


def nearest_keys(key: str, limit: int = 3) -> Sequence[str]:
    """Known keys that look most like `key`, best first; options before keys of Flink alone. May be empty.

    A key that differs only in case or in `_` for `-` comes first.
    """

    import difflib  # loaded where a key is misspelt

    def folded(text: str) -> str:
        return text.lower().replace("_", "-")

    found: list[str] = []
    for names in (_OPTION_NAMES, flink_keys()):
        by_folded = {folded(name): name for name in sorted(names)}
        matches = difflib.get_close_matches(folded(key), by_folded, n=limit, cutoff=0.75)
        found += [by_folded[match] for match in matches if by_folded[match] not in found]
    return found[:limit]
