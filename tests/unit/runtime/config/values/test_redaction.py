"""What configuration shows of secrets in maps: by their inner keys, as of keys."""

from __future__ import annotations

import pytest

from yarrow.common.values.secret_keys import REDACTED
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError

KEY = "pipeline.global-job-parameters"


@pytest.mark.parametrize(
    "inner",
    [
        "db.password",
        "api-key",
        "ACCESS_TOKEN",
        "my.secret",
        "cloud.service-key",
        "kafka.jaas.config",
        "db.pwd",
        "key.passphrase",
    ],
)
def test_inner_keys_of_maps_are_hidden_as_keys_are(inner: str) -> None:
    settings = Settings({KEY: f"owner:ada,{inner}:hunter2", f"{KEY}.{inner}": "hunter3"})
    shown = settings.to_dict()
    assert shown[f"{KEY}.{inner}"] == REDACTED
    assert "hunter" not in str(shown)
    assert Settings({KEY: shown[KEY]}).get(pipeline.GLOBAL_JOB_PARAMETERS) == {
        "owner": "ada",
        inner: REDACTED,
    }
    assert settings.to_dict(redact=False)[KEY] == f"owner:ada,{inner}:hunter2"


def test_maps_without_secrets_are_shown_as_they_were_written() -> None:
    assert Settings({KEY: "owner: ada , day:1"}).to_dict()[KEY] == "owner: ada , day:1"


def test_a_map_that_cannot_be_read_shows_no_secret_either() -> None:
    settings = Settings({KEY: "password hunter2"})
    assert settings.to_dict()[KEY] == REDACTED
    with pytest.raises(ConfigError) as refused:
        settings.get(pipeline.GLOBAL_JOB_PARAMETERS)
    assert "hunter2" not in str(refused.value)
