# SPDX-License-Identifier: Apache-2.0
"""The samples in docs/configuration.md are real: configurations load, messages are what the parser says."""

import re
from pathlib import Path

import pytest

from rdma_plugin.core import config
from rdma_plugin.core.config_models import Config, Resource, Selectors, keys
from rdma_plugin.core.errors import ConfigError

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
VALID = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
FAULTY = re.findall(r"```json faulty\n(.*?)```\n\ngives:\n\n```text\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("text", VALID)
def test_samples_load(text: str) -> None:
    """Each sample that isn't marked faulty loads."""
    assert config.parse(text, "sample").config_list


@pytest.mark.parametrize(("text", "messages"), FAULTY)
def test_messages_are_real(text: str, messages: str) -> None:
    """Each faulty sample gives the messages below it, word by word."""
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "config.json")
    assert str(caught.value).splitlines() == messages.splitlines()


def test_nothing_is_left_out() -> None:
    """There are samples of both kinds, and every key stands in a table."""
    assert len(VALID) >= 7
    assert len(FAULTY) == TEXT.count("```json faulty")
    for key in (*keys(Config), *keys(Resource), *keys(Selectors)):
        assert re.search(rf"^\|.*`{key}`", TEXT, re.MULTILINE), key
