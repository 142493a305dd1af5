"""Hadoop's configuration folder: which one, and the addresses in it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration, check_answers


def write(folder: Path, name: str, properties: Mapping[str, str]) -> None:
    entries = [
        f"<property><name>{key}</name><value> {value} </value></property>"
        for key, value in properties.items()
    ]
    (folder / name).write_text(f"<?xml version='1.0'?><configuration>{''.join(entries)}</configuration>")


def load(folder: Path, properties: Mapping[str, str], **settings: str) -> HadoopConfiguration:
    write(folder, "yarn-site.xml", properties)
    return HadoopConfiguration.load(
        Settings({key.replace("__", "."): value for key, value in settings.items()}),
        {"HADOOP_CONF_DIR": str(folder)},
    )


def test_without_a_folder_the_variables_are_named() -> None:
    with pytest.raises(YarnError, match=r"set HADOOP_CONF_DIR or YARN_CONF_DIR"):
        HadoopConfiguration.load(Settings(), {})


def test_a_folder_without_yarns_file_names_who_named_it(tmp_path: Path) -> None:
    with pytest.raises(YarnError, match=r"YARN_CONF_DIR is .*no yarn-site\.xml"):
        HadoopConfiguration.load(
            Settings(), {"YARN_CONF_DIR": str(tmp_path), "HADOOP_CONF_DIR": "/elsewhere"}
        )


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "yarn-site.xml").write_text("<configuration><property>")
    with pytest.raises(YarnError, match=r"yarn-site\.xml cannot be read"):
        HadoopConfiguration.load(Settings(), {"HADOOP_CONF_DIR": str(tmp_path)})


def test_the_setting_goes_before_the_variable(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write(other, "yarn-site.xml", {"yarn.resourcemanager.hostname": "b"})
    write(tmp_path, "yarn-site.xml", {"yarn.resourcemanager.hostname": "a"})
    environment = {"HADOOP_CONF_DIR": str(tmp_path)}
    chosen = HadoopConfiguration.load(Settings({"env.yarn.conf.dir": str(other)}), environment)
    assert chosen.resource_manager_addresses() == ["b:8032"]


def test_variables_are_replaced(tmp_path: Path) -> None:
    write(tmp_path, "core-site.xml", {"where": "rm.example"})
    hadoop = load(tmp_path, {"yarn.resourcemanager.hostname": "${where}", "loop": "${loop}"})
    assert hadoop.resource_manager_web_addresses() == ["http://rm.example:8088"]
    assert hadoop.get("loop") == "${loop}"


def test_several_resource_managers(tmp_path: Path) -> None:
    hadoop = load(
        tmp_path,
        {
            "yarn.resourcemanager.ha.enabled": "true",
            "yarn.resourcemanager.ha.rm-ids": "one, two",
            "yarn.resourcemanager.hostname.one": "a",
            "yarn.resourcemanager.address.two": "b:9032",
            "yarn.resourcemanager.webapp.https.address.two": "b:9090",
            "yarn.http.policy": "HTTPS_ONLY",
        },
    )
    assert hadoop.resource_manager_addresses() == ["a:8032", "b:9032"]
    assert hadoop.resource_manager_web_addresses() == ["https://a:8090", "https://b:9090"]


def test_name_nodes(tmp_path: Path) -> None:
    assert load(tmp_path, {}).name_node_addresses() == []
    assert load(tmp_path, {"fs.defaultFS": "hdfs://nn"}).name_node_addresses() == ["nn:8020"]
    pair = {
        "fs.defaultFS": "hdfs://both",
        "dfs.ha.namenodes.both": "x,y",
        "dfs.namenode.rpc-address.both.x": "a:8020",
        "dfs.namenode.rpc-address.both.y": "b:8020",
    }
    assert load(tmp_path, pair).name_node_addresses() == ["a:8020", "b:8020"]


def test_keys_of_the_settings_go_before_the_files(tmp_path: Path) -> None:
    hadoop = load(
        tmp_path,
        {"yarn.resourcemanager.hostname": "a", "fs.defaultFS": "hdfs://a"},
        flink__yarn__resourcemanager__hostname="b",
        flink__hadoop__fs__defaultFS="hdfs://b:1",
    )
    assert hadoop.resource_manager_addresses() == ["b:8032"]
    assert hadoop.name_node_addresses() == ["b:1"]


def test_one_address_that_answers_is_enough(tmp_path: Path) -> None:
    hadoop = load(tmp_path, {})
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = f"127.0.0.1:{server.getsockname()[1]}"
        check_answers(["127.0.0.1:1", answering], "YARN", "some.key", hadoop, 5.0)
    with pytest.raises(
        YarnError, match=r"YARN does not answer; tried 127\.0\.0\.1:1 \(connection refused\).*some\.key"
    ):
        check_answers(["127.0.0.1:1"], "YARN", "some.key", hadoop, 5.0)
