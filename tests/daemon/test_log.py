# SPDX-License-Identifier: Apache-2.0
"""Log lines: one line each, constant event, fields beside it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from rdma_plugin import log


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Put the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_when_not_a_terminal() -> None:
    """Auto writes one JSON object a line with time, level, event and the fields."""
    stream = io.StringIO()
    log.set_up(log.LogLevel.INFO, log.LogFormat.AUTO, stream)
    logging.getLogger("x").info("resource changed", extra={"resource": "rdma/a", "devices": ("mlx5_0",), "slots": 3})
    logging.getLogger("x").debug("unheard")
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "info",
        "event": "resource changed",
        "resource": "rdma/a",
        "devices": ["mlx5_0"],
        "slots": 3,
    }


def test_text_quotes_what_would_break_the_line() -> None:
    """A newline or a blank in a field can't make a second line or a second field."""
    stream = io.StringIO()
    log.set_up(log.LogLevel.INFO, log.LogFormat.TEXT, stream)
    logging.getLogger("x").warning("problem", extra={"what": "a b\nc", "hint": "d"})
    (line,) = stream.getvalue().splitlines()
    assert line.endswith('WARNING problem what="a b\\nc" hint=d')


def test_traceback_is_one_json_line() -> None:
    """An exception's traceback stays inside the JSON line."""
    stream = io.StringIO()
    log.set_up(log.LogLevel.INFO, log.LogFormat.JSON, stream)
    try:
        int("odd")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["error"]
