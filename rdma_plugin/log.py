# SPDX-License-Identifier: Apache-2.0
"""Log lines: a constant event text, and everything variable as fields (`logger.info("event", extra={"resource": name})`).

JSON when stderr is no terminal, `key=value` text otherwise. One line per record, whatever the fields hold.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogFormat(StrEnum):
    """How log lines are written."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least serious record that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def set_up(level: LogLevel, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Send this process's log lines to `stream` (None: stderr)."""
    stream = stream or sys.stderr
    is_terminal = stream is not None and stream.isatty()  # None where the caller has closed it
    is_text = log_format is LogFormat.TEXT or (log_format is LogFormat.AUTO and is_terminal)
    handler: logging.Handler = logging.StreamHandler(stream) if stream is not None else logging.NullHandler()
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    handler.addFilter(_without_foreign_traceback)
    for noisy in ("watchdog", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # what it can't decode is a netlink answer that counts as none: `host.netlink` says so itself
    logging.getLogger("pyroute2").setLevel(logging.CRITICAL)


def _without_foreign_traceback(record: logging.LogRecord) -> bool:
    """Cut the traceback that gRPC logs for a request that is no protobuf: the caller's fault, and said in the line."""
    if record.name.startswith("grpc"):
        record.exc_info = record.exc_text = None
    return True


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD and not key.startswith("_")}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, the fields, and `error` with a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= _fields(record)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """`12:00:01.000 INFO event key=value …` for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = "".join(f" {key}={_text(value)}" for key, value in _fields(record).items())
        line = f"{_time(record)[11:23]} {record.levelname:<7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _text(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return (
        json.dumps(text, ensure_ascii=False)
        if any(char.isspace() or not char.isprintable() for char in text) or not text
        else text
    )
