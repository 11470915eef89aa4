# SPDX-License-Identifier: Apache-2.0
"""GET /livez, /readyz, /metrics and /debug/status: the standard library's server, a few requests at once.

Answers come from a `Status` that the event loop hands out; a loop that doesn't turn is what /livez finds. Nothing
secret, nothing can be changed, and a request is bounded in size and time.
"""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any, Final, NoReturn

from rdma_plugin import metrics
from rdma_plugin.core import status as status_module
from rdma_plugin.core.status import Status

logger = logging.getLogger(__name__)
AT_ONCE: Final = 8
"""Requests; one more is closed unanswered."""
REQUEST_S: Final = 2.0
"""Time for one request, from its first byte to its last."""
LOOP_S: Final = 2.0
"""Time within which a living loop hands out its status."""
RETRY_S: Final = 1.0
"""During a rolling update the other instance holds the address for a while (hostNetwork)."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class LoopError(Exception):
    """The event loop doesn't turn."""


def _answer(path: str, ask: Callable[[], Status]) -> tuple[HTTPStatus, str, bytes]:
    match path:
        case "/livez":
            ask()
            return HTTPStatus.OK, TEXT, b"ok\n"
        case "/readyz":
            return _readiness(ask())
        case "/metrics":
            return HTTPStatus.OK, metrics.CONTENT_TYPE, metrics.text(ask())
        case "/debug/status":
            text = json.dumps(status_module.document(ask()), indent=2, ensure_ascii=False)
            return HTTPStatus.OK, JSON, f"{text}\n".encode()
        case _:
            return HTTPStatus.NOT_FOUND, TEXT, b"there are /livez, /readyz, /metrics and /debug/status\n"


def _readiness(status: Status) -> tuple[HTTPStatus, str, bytes]:
    missing = list(status_module.shortcomings(status))
    lines = [*(missing or ["ready"]), *status_module.remarks(status)]
    code = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
    return code, TEXT, "".join(f"{line}\n" for line in lines).encode()


def _handler(ask: Callable[[], Status]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S
        server_version = "rdma-plugin"
        sys_version = ""

        def do_GET(self) -> None:
            try:
                code, kind, body = _answer(self.path.partition("?")[0], ask)
            except LoopError as err:
                code, kind, body = HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"{err}\n".encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
            logger.debug("request", extra={"client": self.client_address[0], "what": format % arguments})

    return Handler


class _Server(ThreadingMixIn, HTTPServer):
    """A thread for each request, a few at once, each cut off after `REQUEST_S` however it dribbles."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._room = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class has it
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class has it
        timer = threading.Timer(REQUEST_S, _cut, args=(request,))
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the base class's names
        logger.debug("request failed", extra={"client": str(client_address)}, exc_info=True)  # noqa: LOG014 - socketserver calls this inside its except block


def _cut(request: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        request.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6


async def serve(host: str, port: int, snapshot: Callable[[], Status]) -> NoReturn:
    """Answer until cancelled; `snapshot` is called on this loop. An address in use is tried again until it is free."""
    loop = asyncio.get_running_loop()

    def ask() -> Status:
        result: Future[Status] = Future()
        loop.call_soon_threadsafe(lambda: result.set_result(snapshot()))
        try:
            return result.result(LOOP_S)
        except TimeoutError:
            raise LoopError(f"the event loop didn't answer within {LOOP_S:g} s") from None

    server = await _bind(host, port, _handler(ask))
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    logger.info("http server listens", extra={"address": f"{host}:{server.server_address[1]}"})
    try:
        await asyncio.Event().wait()
        raise AssertionError  # nobody sets that event
    finally:
        # in a thread of its own: shutdown waits for the request under way, which may be waiting for this very loop
        threading.Thread(target=_end, args=(server,), name="http end", daemon=True).start()


def _end(server: HTTPServer) -> None:
    server.shutdown()
    server.server_close()


async def _bind(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> HTTPServer:
    is_said = False
    while True:
        try:
            return (_Server6 if ":" in host else _Server)((host, port), handler)
        except OSError as err:
            if not is_said:
                why = err.strerror or str(err)
                hint = "another instance ends soon in a rolling update; else choose another --http-address"
                logger.warning(
                    "http address can't be had, trying again",
                    extra={"address": f"{host}:{port}", "why": why, "hint": hint},
                )
                is_said = True
            await asyncio.sleep(RETRY_S)
