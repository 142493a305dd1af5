"""The files of a secured cluster: Kerberos is asked for everywhere, nothing of the system is named; none starts."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.hadoop import configuration, kerberos, port_names
from tests.support.hadoop.jars import KDC_POM, POM
from tests.support.hadoop.layout import NODE_ADDRESSES, Layout

NAMES = (*port_names.NAMES, port_names.KDC_NAME)
PORTS = {name: 20_000 + number for number, name in enumerate(NAMES)}


def properties(path: Path) -> dict[str, str]:
    entries = ElementTree.parse(path).getroot().iter("property")
    return {entry.findtext("name", ""): entry.findtext("value", "") for entry in entries}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path)
    configuration.write(made, PORTS, Path("/jars"), secured=True)
    kerberos.write(made, PORTS)
    return made


@pytest.mark.parametrize("daemon", ["", *NODE_ADDRESSES])
def test_every_part_asks_for_kerberos_and_logs_in_by_the_one_keytab(layout: Layout, daemon: str) -> None:
    folder = layout.conf_of(daemon)
    assert properties(folder / "core-site.xml")["hadoop.security.authentication"] == "kerberos"
    found = properties(folder / "hdfs-site.xml") | properties(folder / "yarn-site.xml")
    keytabs = {value for key, value in found.items() if key.endswith(("keytab", "keytab.file"))}
    assert keytabs == {str(kerberos.keytab(layout))}
    assert "JAVA_TOOL_OPTIONS" in found["yarn.nodemanager.env-whitelist"]


def test_a_cluster_is_not_secured_unless_it_is_said(tmp_path: Path) -> None:
    configuration.write(Layout(tmp_path), PORTS, Path("/jars"))
    for path in tmp_path.rglob("*-site.xml"):
        assert not [key for key in properties(path) if "kerberos" in key or "security" in key]


def test_java_finds_the_kdc_of_the_cluster(layout: Layout) -> None:
    file = Path(kerberos.java_options(layout).partition("=")[2])
    assert file.is_relative_to(layout.root)
    said = file.read_text()
    assert f"kdc = 127.0.0.1:{PORTS[port_names.KDC_NAME]}\n" in said
    assert f"default_realm = {kerberos.REALM}\n" in said


def test_a_new_start_of_the_kdc_waits_for_new_keys(layout: Layout) -> None:
    assert not kerberos.has_all_keys(layout)
    kerberos.keytab(layout).write_bytes(b"... alice ...")
    assert kerberos.has_all_keys(layout)
    command = kerberos.kdc_command(layout, "/java", Path("/jars"))
    assert not kerberos.has_all_keys(layout)
    # The user's key is the last that is written.
    assert command[-1] == kerberos.USER_NAME


def test_the_kdc_is_of_the_same_hadoop() -> None:
    versions = {re.findall(r"<hadoop\.version>(.*)</hadoop", pom.read_text())[0] for pom in (POM, KDC_POM)}
    assert len(versions) == 1
