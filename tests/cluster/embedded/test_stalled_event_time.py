"""Who holds event time back: asked by a client, by REST and in the error of a test that has waited in vain."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from tests.cluster.embedded.test_aligned_sources import Keep, Track, Tracks, World
from tests.cluster.embedded.waiting import wait_until
from yarrow.client.event_time_lines import event_time_lines
from yarrow.common import Duration, WatermarkStrategy
from yarrow.embedded.mini_cluster import mini_cluster

pytestmark = pytest.mark.cluster

SILENT = "split 'silent' of 'Source: tracks' (subtask 1) has had no row yet, and no idleness is set"


class Silent(Tracks):
    """Two splits; one of them never has a row, and does not end."""

    def create_reader(self, context: Any) -> Any:
        reader = super().create_reader(context)
        reader.silent = {"silent"}
        return reader


def test_the_error_of_a_test_names_the_silent_split() -> None:
    World.position = dict.fromkeys(("silent", "loud"), 0)
    World.ahead, World.paused, World.rows = [], [], []
    with pytest.raises(TimeoutError) as stalled, mini_cluster(slots=1, processes=False) as cluster:
        env = cluster.get_execution_environment().set_parallelism(1)
        tracks = env.from_source(
            Silent(Track("silent", 10), Track("loud", 10)),
            WatermarkStrategy.for_monotonous_timestamps(),
            "tracks",
        )
        tracks.key_by(lambda row: row[0]).map(Keep()).print()
        client: Any = env.execute_async("stalled")
        wait_until(lambda: SILENT in client.why_it_runs(), lambda: client.why_it_runs())
        address = f"{cluster.web_address}/jobs/{client.get_job_id()}/event-time"
        with urllib.request.urlopen(address) as answer:
            shown = "\n".join(event_time_lines(json.load(answer)))
        assert SILENT in shown
        assert "Source: tracks" in shown
        client.get_job_execution_result().result(0.01)
    assert SILENT in str(stalled.value)
    assert "with_idleness" in str(stalled.value)
    assert any(SILENT in note for note in stalled.value.__notes__)


def test_a_job_that_waits_for_nothing_has_ended() -> None:
    World.position = {"loud": 0}
    World.ahead, World.paused, World.rows = [], [], []
    with mini_cluster(slots=1, processes=False) as cluster:
        env = cluster.get_execution_environment().set_parallelism(1)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_seconds(60))
        env.from_source(Tracks(Track("loud", 1_000)), strategy, "tracks").map(Keep()).print()
        client: Any = env.execute_async("ended")
        client.get_job_execution_result().result(120)
        assert client.why_it_runs() == ""
