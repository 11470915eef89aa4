# SPDX-License-Identifier: Apache-2.0
"""Configuration text: whatever the bytes, it is a configuration or a ConfigError in readable lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdma_plugin.core import config
from rdma_plugin.core.config import Config
from rdma_plugin.core.config_faults import MAX_FAULTS
from rdma_plugin.core.errors import ConfigError
from tests.core.corpus import HOSTILE
from tests.core.documents import documents, mutants
from tests.fuzz.examples import TIMEOUT_S, inputs
from tests.fuzz.mutations import mutated

SHORT_BYTES = 20_000
"""The corpus' mebibytes are tried elsewhere, once each."""
_SMALL = [text for text in HOSTILE.values() if len(text) < SHORT_BYTES]
_TEXTS = st.one_of(
    mutated(documents().map(lambda document: json.dumps(document).encode())),
    mutants().map(lambda document: json.dumps(document, ensure_ascii=False).encode(errors="surrogatepass")),
    mutated(st.sampled_from(_SMALL)),
    st.binary(max_size=300),
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S)]


@inputs(short=150)
@given(_TEXTS)
def test_any_text_is_a_configuration_or_a_readable_error(text: bytes) -> None:
    """Nothing but a ConfigError comes out, and its lines are few, short and printable."""
    read = _read(text)
    if isinstance(read, ConfigError):
        lines = str(read).splitlines()
        assert 1 <= len(lines) == len(read.faults) <= MAX_FAULTS + 1
        assert all(line.isascii() and line.isprintable() and len(line) < 400 for line in lines)
    else:
        assert read.config_list
        assert _read(text) == read


def _read(text: bytes) -> Config | ConfigError:
    try:
        return config.parse(text, "config.json")
    except ConfigError as err:
        return err
