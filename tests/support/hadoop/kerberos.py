"""The secured variant of a cluster: a KDC of its own on loopback, principals, and the properties that ask for them.

Owner: the caller's thread, before daemons start. Everything lies below the cluster's folder: the system's own
krb5.conf is neither read nor changed. The KDC makes its principals anew at each start, and one keytab with all of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.hadoop.errors import HadoopError
from tests.support.hadoop.layout import CONTAINER_VARIABLES, KDC, LOOPBACK, Layout
from tests.support.hadoop.port_names import KDC_NAME
from tests.support.services.ports import Ports

_ORGANISATION = "YARROW"
_DOMAIN = "TEST"
REALM = f"{_ORGANISATION}.{_DOMAIN}"
#: The superuser of HDFS, and somebody who may submit applications.
SUPERUSER = f"hdfs/localhost@{REALM}"
USER_NAME = "alice"
USER = f"{USER_NAME}@{REALM}"
_YARN = f"yarn/localhost@{REALM}"
#: Of WebHDFS, by address: it is under the name that clients use.
_WEB = (f"HTTP/{LOOPBACK}@{REALM}", f"HTTP/localhost@{REALM}")
#: What the KDC needs of Java's modules: it tells its own JVM of its krb5.conf.
_MODULES = ("--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",)


def folder(layout: Layout) -> Path:
    """Everything of Kerberos."""
    return layout.root / "kerberos"


def keytab(layout: Layout) -> Path:
    """The keys of all principals."""
    return folder(layout) / "all.keytab"


def write(layout: Layout, ports: Ports) -> None:
    """Writes krb5.conf and the KDC's settings; removes a keytab of an earlier start."""
    folder(layout).mkdir(mode=0o700, parents=True, exist_ok=True)
    port = ports[KDC_NAME]
    _krb5_conf(layout).write_text(
        "[libdefaults]\n"
        f"default_realm = {REALM}\n"
        "udp_preference_limit = 1\n"
        "dns_lookup_realm = false\n"
        "dns_lookup_kdc = false\n"
        "[realms]\n"
        f"{REALM} = {{\n  kdc = {LOOPBACK}:{port}\n}}\n",
        encoding="utf-8",
    )
    settings = {
        "org.name": _ORGANISATION,
        "org.domain": _DOMAIN,
        "kdc.bind.address": LOOPBACK,
        "kdc.port": str(port),
        "instance": "Yarrow",
        "transport": "TCP",
        "max.ticket.lifetime": "86400000",
        "max.renewable.lifetime": "604800000",
        "debug": "false",
    }
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    (folder(layout) / "kdc.properties").write_text(text, encoding="utf-8")


def java_options(layout: Layout) -> str:
    """With which a JVM finds the KDC."""
    return f"-Djava.security.krb5.conf={_krb5_conf(layout)}"


def kdc_command(layout: Layout, java_home: str, jars: Path) -> Sequence[str]:
    """Starts the KDC, which writes the keytab when it serves, a principal after another."""
    keytab(layout).unlink(missing_ok=True)
    principals = [name.partition("@")[0] for name in (SUPERUSER, _YARN, *_WEB, USER)]
    return [
        str(Path(java_home) / "bin" / "java"),
        f"-Xmx{KDC.heap}m",
        *_MODULES,
        "-cp",
        f"{jars}/*",
        KDC.main,
        str(folder(layout)),
        str(folder(layout) / "kdc.properties"),
        str(keytab(layout)),
        *principals,
    ]


def has_all_keys(layout: Layout) -> bool:
    """Whether the keytab has the last of the principals."""
    return keytab(layout).is_file() and USER_NAME.encode() in keytab(layout).read_bytes()


def login(layout: Layout, principal: str) -> dict[str, str]:
    """Variables with which Hadoop's own programs log in."""
    return {"KRB5PRINCIPAL": principal, "KRB5KEYTAB": str(keytab(layout))}


def core_site() -> dict[str, str]:
    """What HDFS and YARN share."""
    return {"hadoop.security.authentication": "kerberos", "hadoop.security.authorization": "true"}


def hdfs_site(layout: Layout) -> dict[str, str]:
    """Of NameNode and DataNode. The DataNode's ports are not below 1024, as only root could have them."""
    keys = str(keytab(layout))
    return {
        "dfs.namenode.kerberos.principal": SUPERUSER,
        "dfs.namenode.keytab.file": keys,
        "dfs.datanode.kerberos.principal": SUPERUSER,
        "dfs.datanode.keytab.file": keys,
        # WebHDFS alone: the other pages are read by whoever waits for a daemon.
        "hadoop.http.authentication.type": "kerberos",
        "hadoop.http.authentication.simple.anonymous.allowed": "false",
        "hadoop.http.authentication.kerberos.principal": "*",
        "hadoop.http.authentication.kerberos.keytab": keys,
        "dfs.web.authentication.kerberos.principal": "*",
        "dfs.web.authentication.kerberos.keytab": keys,
        "dfs.block.access.token.enable": "true",
        "dfs.data.transfer.protection": "authentication",
        "ignore.secure.ports.for.testing": "true",
    }


def yarn_site(layout: Layout) -> dict[str, str]:
    """Of ResourceManager and NodeManagers."""
    keys = str(keytab(layout))
    return {
        "yarn.resourcemanager.principal": _YARN,
        "yarn.resourcemanager.keytab": keys,
        "yarn.nodemanager.principal": _YARN,
        "yarn.nodemanager.keytab": keys,
        "yarn.resourcemanager.webapp.delegation-token-auth-filter.enabled": "false",
        # A secured NodeManager reads logs by Hadoop's native library alone, which no jar brings: it would end.
        "yarn.log-aggregation-enable": "false",
        # Containers find the KDC of this cluster by a variable.
        "yarn.nodemanager.env-whitelist": f"{CONTAINER_VARIABLES},JAVA_TOOL_OPTIONS",
    }


def make_folders(layout: Layout, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Makes the folders of HDFS that every cluster has, and the user's home."""
    script = (
        "hdfs dfsadmin -safemode wait"
        f" && hdfs dfs -mkdir -p /tmp/logs /user/{USER_NAME}"
        " && hdfs dfs -chmod 1777 /tmp /tmp/logs"
        f" && hdfs dfs -chown {USER_NAME} /user/{USER_NAME}"
    )
    variables = [f"{name}={value}" for name, value in login(layout, SUPERUSER).items()]
    done = run("env", *variables, "sh", "-ec", script)
    if done.returncode != 0:
        raise HadoopError(f"the folders of HDFS could not be made:\n{done.stderr[-2000:]}")


def _krb5_conf(layout: Layout) -> Path:
    return folder(layout) / "loopback-krb5.conf"
