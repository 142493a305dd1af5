"""What YARN and HDFS say becomes a sentence that names the setting."""

from __future__ import annotations

import pytest

from yarrow.runtime.yarn.failures import UnknownQueueError, explain, first_lines, summary

QUEUE = (
    "Failed to submit application, exception:\norg.apache.hadoop.yarn.exceptions.YarnException: Failed to submit"
    " application_1795277999336_0012 to YARN : Application application_1795277999336_0012 submitted by user root to"
    " unknown queue: nowhere\n\tat org.apache.hadoop.yarn.client.api.impl.YarnClientImpl.submitApplication(Y.java:344)"
)
MEMORY = (
    "Failed to submit application, exception:\n"
    "org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException: Invalid resource request! Cannot"
    " allocate containers as requested resource is greater than maximum allowed allocation. Requested resource"
    " type=[memory-mb], Requested resource=<memory:65536, vCores:1>, maximum allowed"
    " allocation=<memory:6656, vCores:8>\n"
    "\tat org.apache.hadoop.yarn.server.resourcemanager.RMServerUtils.check(RMServerUtils.java:1)"
)
LABEL = (
    "Failed to submit application, exception:\n"
    "org.apache.hadoop.yarn.exceptions.InvalidLabelResourceRequestException: Invalid resource request, node label not"
    " enabled but request contains label expression\n"
    "\tat org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerUtils.validate(SchedulerUtils.java:1)"
)
PERMISSION = (
    "org.apache.hadoop.security.AccessControlException: Permission denied: user=poor, access=WRITE,"
    ' inode="/user":root:supergroup:drwxr-xr-x\n\tat org.apache.hadoop.hdfs.server.namenode.FSPermissionChecker.check'
)
QUOTA = (
    "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: The DiskSpace quota of /user/poor is exceeded:"
    " quota = 1024 B = 1 KB but diskspace consumed = 134217728 B = 128 MB"
)
SAFE_MODE = (
    "org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot create directory /user/joe/.skein. Name node is"
    " in safe mode."
)
REFUSED = (
    "java.net.ConnectException: Call From host/127.0.1.1 to localhost:8020 failed on connection exception:"
    " java.net.ConnectException: Connection refused; For more details see: http://wiki.apache.org/hadoop/"
)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (QUEUE, ("'nowhere'", "yarn.application.queue")),
        (MEMORY, ("<memory:6656", "yarn.scheduler.maximum-allocation-mb", "taskmanager.memory.process.size")),
        (LABEL, ("node label not enabled", "yarn.application.node-label", "yarn.taskmanager.node-label")),
        (
            "Invalid label resource request, cluster do not contain , label= gpu",
            ("label= gpu", "yarn.application.node-label"),
        ),
        (PERMISSION, ("user=poor", "home directory", "yarn.staging-directory")),
        (QUOTA, ("quota of /user/poor is exceeded", "yarn.staging-directory")),
        ("File /a could only be written to 0 of the 1 minReplication nodes.", ("no room",)),
        (SAFE_MODE, ("safe mode", "wait")),
        (REFUSED, ("localhost:8020", "HADOOP_CONF_DIR")),
        ("Kerberos ticket not found, please kinit and restart", ("kinit", "security.kerberos.login.keytab")),
        (
            "User joe does not have permission to submit application_1_1 to queue etl",
            ("yarn.application.queue",),
        ),
    ],
)
def test_a_refusal_names_the_setting(said: str, named: tuple[str, ...]) -> None:
    error = str(explain("submit the application 'x'", said))
    assert error.startswith("Cannot submit the application 'x': ")
    assert all(part in error for part in named), error
    assert "\tat " not in error
    assert "org.apache" not in error


def test_a_label_is_not_taken_for_a_size() -> None:
    assert "memory" not in str(explain("submit", LABEL))


def test_diagnostics_become_a_sentence() -> None:
    assert summary("") == summary(" \n") == ""
    assert summary("Killed by joe") == "Killed by joe"
    chained = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nKeyError: 1\n\nDuring handling of'
        ' the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File "a.py"\n'
        "    h()\nValueError: two\n"
    )
    assert summary(chained) == "KeyError: 1 ValueError: two"
    assert len(summary("word " * 1000)) < 700


def test_only_a_missing_queue_is_told_apart() -> None:
    assert isinstance(explain("submit", QUEUE), UnknownQueueError)
    assert not isinstance(explain("submit", MEMORY), UnknownQueueError)


def test_what_is_not_known_is_passed_on_without_the_stack() -> None:
    text = "java.io.IOException: the moon is full\n\tat a.b.C.d(C.java:1)\n\t... 3 more\n"
    assert str(explain("kill application_1_1", text)) == "Cannot kill application_1_1: the moon is full"
    assert str(explain("kill it", "")).endswith("no reason was given")


def test_lines_are_said_once() -> None:
    assert first_lines("a\na\nb\nc\nd", limit=3) == "a b c"
