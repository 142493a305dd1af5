"""doctor: checks everything that a first submission to YARN needs.

Owner: the main thread. Nothing is submitted and nothing stays changed: one small file is written to HDFS and
removed. Each finding is one line with the setting to change. A check without its precondition is left out
instead of failing again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

from yarrow.cli.doctor.doctor_findings import Finding, Level, failed
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration

Check = Callable[[], Iterable[Finding]]


def doctor(config: Settings, show: Callable[[str], None] = print) -> int:
    """Prints a line for each finding; returns 1 if one of them is FAIL, else 0."""
    worst = 0
    for finding in examine(config):
        show(str(finding))
        worst = max(worst, int(finding.level is Level.FAIL))
    return worst


def examine(config: Settings) -> Iterator[Finding]:
    """All findings, in the order in which users should handle them."""
    from yarrow.cli.doctor import doctor_client, doctor_hadoop, doctor_tokens

    yield from _guarded("python", lambda: doctor_client.python(config))
    yield from _guarded("java", doctor_client.java)
    yield from _guarded("yarn", doctor_client.yarn_program)
    yield from _guarded("settings", lambda: doctor_client.settings(config))
    yield from _guarded("zookeeper", lambda: doctor_client.zookeeper(config))
    try:
        hadoop = HadoopConfiguration.load(config)
        use_hdfs_settings(HdfsSettings.of(config, is_client=True))
    except YarrowError as error:
        yield failed("hadoop", str(error))
        return
    yield Finding(Level.OK, "hadoop", f"configuration {hadoop.folder} ({hadoop.origin})")
    yield from _guarded("kerberos", lambda: doctor_hadoop.kerberos(config, hadoop))
    if hadoop.is_secured:
        yield from _guarded("tokens", lambda: doctor_tokens.applications(config))
    yield from _guarded("hdfs", lambda: doctor_hadoop.hdfs(config, hadoop))
    yield from _guarded("yarn", lambda: doctor_hadoop.resource_manager(config, hadoop))


def _guarded(subject: str, check: Check) -> Iterator[Finding]:
    """The findings of one check; an exception becomes its last one."""
    try:
        yield from check()
    except (YarrowError, OSError) as error:
        yield failed(subject, str(error))


def main(config: Settings) -> None:
    """The command: ends with the exit status."""
    sys.exit(doctor(config))
