# SPDX-License-Identifier: Apache-2.0
"""Hostile configurations: one readable error, never a traceback, never slow."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdma_plugin.core import config
from rdma_plugin.core.config_faults import MAX_FAULTS
from rdma_plugin.core.errors import ConfigError
from tests.core.corpus import HOSTILE, document


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_contents_are_refused(name: str) -> None:
    """Each is a ConfigError of a few short, printable ASCII lines that start with the file's name, in under a second."""
    started = time.process_time()
    with pytest.raises(ConfigError) as caught:
        config.parse(HOSTILE[name], "config.json")
    assert time.process_time() - started < 1
    lines = str(caught.value).splitlines()
    assert 1 <= len(lines) == len(caught.value.faults) <= MAX_FAULTS + 1
    for line in lines:
        assert line.startswith("config.json: ")
        assert len(line) < 400
        assert line.isascii()
        assert line.isprintable()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("empty", 'file: is empty; write at least {"configList": [...]} with one resource in it'),
        ("byte-order-mark", "file: starts with a byte-order mark; save it as UTF-8 without one (without BOM)"),
        ("utf-16", "file: is UTF-16; save it as UTF-8 without a byte-order mark"),
        ("invalid-utf-8", "file: byte 0xff at offset 34 (line 1) is not UTF-8; save the file as UTF-8"),
        ("nul", "line 1, column 53: there is a NUL character; save the file as plain UTF-8 text"),
        ("nan", "line 1, column 53: NaN is not a JSON number; write a whole number such as 200"),
        ("trailing-comma", "line 1, column 18: there is a comma before a closing bracket; remove it"),
        ("comment", "line 1, column 1: JSON has no comments; remove it"),
        ("single-quotes", "line 1, column 2: JSON wants double quotes, not single ones"),
        ("half", "line 1, column 39: a string begins here and its closing quote is missing"),
        ("open-bracket", "line 1, column 2: the file ends too early; a bracket is not closed or a value is missing"),
        ("two-documents", 'line 1, column 93: the document has ended, but "{" follows; remove what is too much'),
        ("deep-lists", "line 1, column 33: brackets are nested deeper than 32 levels; a configuration has five"),
        ("three-mebibytes", "file: is longer than 2 MiB; no configuration is"),
        ("many-empty-lists", "file: has more than 20000 strings, brackets and commas; use globs"),
        ("repeated-key-inside", "configList[0].selectors.vendors: stands here more than once; remove all but one"),
        ("surrogate-key", r'configList[0]: the key "\udfff" is not text'),
        ("list", 'file: a list stands at the top; a configuration is an object: {"configList": [...]}'),
        (
            "control-characters",
            (
                r'configList[0].resourceName: "\u001b[31mred\u0007\u202e" has a space or an unprintable character in it; '
                'write for example "hca_shared_devices_a"'
            ),
        ),
        (
            "five-thousand-digits",
            (
                f"configList[0].rdmaHcaMax: {'9' * 60}... is not a plain whole number; "
                "a whole number from 0 to 100000 is allowed"
            ),
        ),
        (
            "mebibyte-name",
            f'configList[0].resourceName: "{"a" * 60}..." has 1048576 characters; at most 63 are allowed',
        ),
    ],
)
def test_hostile_contents_are_named(name: str, line: str) -> None:
    """The one fault says where and what to do."""
    with pytest.raises(ConfigError) as caught:
        config.parse(HOSTILE[name], "config.json")
    assert str(caught.value) == f"config.json: {line}"


def test_lines_and_columns_count_from_one() -> None:
    """The place of a syntax error is the one that an editor shows, whatever comes before it."""
    with pytest.raises(ConfigError, match="line 3, column 5: JSON has no comments"):
        config.parse('{\n  "configList":\n    # none', "test")


def test_words_inside_strings_are_text() -> None:
    """NaN, brackets and quotes inside a string are no tokens."""
    with pytest.raises(ConfigError, match="ifNames") as caught:
        config.parse(document(selectors={"ifNames": ['NaN [[[ "\\" Infinity' + "[" * 50]}), "test")
    assert len(caught.value.faults) == 1


def test_text_with_surrogates_is_refused() -> None:
    """Text that was decoded with surrogateescape is refused like any other."""
    with pytest.raises(ConfigError):
        config.parse('{"configList": "\udcff"}', "test")


def test_many_faults_are_counted() -> None:
    """The first faults are worded, the rest are a number."""
    with pytest.raises(ConfigError) as caught:
        config.parse(HOSTILE["many-resources"], "test")
    assert len(caught.value.faults) == MAX_FAULTS + 1
    assert caught.value.faults[-1].what == f"has {9_000 - MAX_FAULTS} more faults; correct these first"


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Nothing but a ConfigError comes out of any bytes."""
    with pytest.raises(ConfigError):
        config.parse(data, "test")


@given(st.text(st.sampled_from('{}[]",:\\0eENaINfinty- \n\ud800\ufeff')))
def test_any_text_of_json_characters(text: str) -> None:
    """Nothing but a ConfigError comes out of text that looks like JSON."""
    with pytest.raises(ConfigError):
        config.parse(text, "test")
