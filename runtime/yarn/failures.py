"""The refusals of YARN, HDFS and Skein as sentences that name the setting that decides.

Owner: any thread; pure texts, no I/O. It knows words of Hadoop's messages; an unknown one is passed on, its first line
first, without the Java stack.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from yarrow.runtime.yarn.gateways import YarnError

_EXCEPTION: Final = re.compile(r"^\s*(?:[a-z][\w$]*\.)+(\w+(?:Exception|Error)):\s*")
_STACK_LINE: Final = re.compile(r"^\s*(at [\w.$/@]+\(|\.\.\. \d+ more|Caused by: )")
#: Frames, and the heads that stand above them.
_PYTHON_STACK: Final = re.compile(
    r"\s+File \"|\s{4}|\s*(Traceback \(most recent|During handling of|The above exception was)"
)
_SUMMARY_LINES: Final = 4
_SUMMARY_LENGTH: Final = 600


class UnknownQueueError(YarnError):
    """There is no such queue, or it takes no applications."""


def explain(action: str, text: str) -> YarnError:
    """The error for `action` ("submit the application ...") that failed with YARN's `text`."""
    for pattern, sentence in _KNOWN:
        found = pattern.search(text)
        if found is not None:
            kind = UnknownQueueError if sentence is _QUEUE else YarnError
            said = {"line": first_lines(found[0], 1), "lines": first_lines(found[0]), **found.groupdict()}
            return kind(f"Cannot {action}: {sentence.format_map(said)}")
    return YarnError(f"Cannot {action}: {first_lines(text) or 'no reason was given'}")


def first_lines(text: str, limit: int = 3) -> str:
    """The telling lines of a Java error: stack and names of packages left out, at most `limit` lines."""
    kept = []
    for line in text.splitlines():
        if not line.strip() or _STACK_LINE.match(line):
            continue
        shortened = _EXCEPTION.sub("", line.strip())
        if shortened and shortened not in kept:
            kept.append(shortened)
    return " ".join(kept[:limit])


def summary(diagnostics: str) -> str:
    """YARN's diagnostics of an application, in a sentence's length and on one line; "" for none.

    They may be pages: Java's stack and that of a user's program stay out, of which the last line says what happened.
    """
    text = first_lines("\n".join(without_stack(diagnostics)), limit=_SUMMARY_LINES)
    return text if len(text) <= _SUMMARY_LENGTH else f"{text[:_SUMMARY_LENGTH]} ..."


def without_stack(text: str) -> list[str]:
    """The lines that are not empty and not of a Python stack."""
    return [line for line in text.splitlines() if line.strip() and not _PYTHON_STACK.match(line)]


# What `explain` says: `line` and `lines` are what the pattern has found, other names its groups.
_QUEUE: Final = (
    "YARN has no queue '{queue}' that takes applications:"
    " yarn.application.queue must name a leaf queue in the RUNNING state."
)
_MEMORY: Final = (
    "{lines}. A container may have at most what yarn.scheduler.maximum-allocation-mb and"
    " yarn.scheduler.maximum-allocation-vcores of the ResourceManager say: lower jobmanager.memory.process.size,"
    " taskmanager.memory.process.size, yarn.appmaster.vcores or yarn.containers.vcores."
)
_PERMISSION: Final = (
    "HDFS refuses: {line}. The user needs a home directory there that he may write"
    " (applications' files go below it), and yarn.staging-directory must be writable too."
)
_SPACE: Final = (
    "HDFS has no room for the application's files: {line}."
    " Free space or raise the quota of the user's home directory and of yarn.staging-directory."
)
_SAFE_MODE: Final = (
    "HDFS is in safe mode and takes no files:"
    " wait until its NameNode has left it (`hdfs dfsadmin -safemode get`)."
)
_REFUSED: Final = (
    "nobody answers at {address}: check that the service runs and that the address in the Hadoop"
    " configuration (HADOOP_CONF_DIR: yarn.resourcemanager.address, fs.defaultFS) is right."
)
_KERBEROS: Final = (
    "the cluster wants Kerberos and there is no valid ticket: run `kinit`, or set"
    " security.kerberos.login.keytab and security.kerberos.login.principal."
)
_LABEL: Final = (
    "{line}. yarn.application.node-label and yarn.taskmanager.node-label must name"
    " labels that the queue may use."
)
_ADMISSION: Final = (
    "{line}. The user may not submit to the queue of yarn.application.queue:"
    " ask for that right, or name another queue."
)
_MASTER_GONE: Final = "Skein's ApplicationMaster does not answer (any more): it has ended, or is just ending."
_DRIVER_SILENT: Final = (
    "Skein's driver, the Java process of this command, runs and does not answer: the machine is overloaded, or the"
    " process hangs. Look at load and free memory. Check by `yarn application -list` whether YARN did the work all"
    " the same, and run the command again."
)
_KNOWN: Final[Sequence[tuple[re.Pattern[str], str]]] = tuple(
    (re.compile(pattern, re.DOTALL), sentence)
    for pattern, sentence in (
        (r"submitted by user \S+ to (?:unknown|non-leaf) queue:? ?(?P<queue>[\w.\-]+)", _QUEUE),
        (r"[Qq]ueue (?:named )?'?(?P<queue>[\w.\-]+)'? (?:does not exist|doesn't exist|is STOPPED)", _QUEUE),
        (r"Invalid (?:label )?resource request[^\n]*label[^\n]*", _LABEL),
        (r"Invalid resource request[^\n]*", _MEMORY),
        (r"(?:DSQuota|NSQuota|QuotaExceeded|The (?:DiskSpace|NameSpace) quota)[^\n]*", _SPACE),
        (r"could only be (?:written|replicated) to[^\n]*", _SPACE),
        (r"SafeModeException|[Nn]ame node is in safe mode", _SAFE_MODE),
        (r"User \S+ (?:does not have permission|cannot submit)[^\n]*", _ADMISSION),
        (r"Permission denied[^\n]*", _PERMISSION),
        (r"Kerberos ticket not found|GSS initiate failed|Client cannot authenticate via", _KERBEROS),
        (r"to (?P<address>[\w.\-]+(?:/[\d.]+)?:\d+) failed on connection exception", _REFUSED),
        (r"Unable to connect to driver", _DRIVER_SILENT),
        (r"Unable to connect to application", _MASTER_GONE),
    )
)
