# SPDX-License-Identifier: Apache-2.0
"""What bytes are thrown at: a laid-out node whose attributes can be changed, and the socket of a real process."""

import json
from pathlib import Path
from typing import Any

import grpc

from rdma_plugin.core import config
from tests.fakes import nodes
from tests.fakes.plugin import Line, PluginProcess

CONFIG = config.parse(
    json.dumps(
        {
            "configList": [
                {
                    "resourceName": "mine",
                    "rdmaHcaMax": 3,
                    "selectors": {"vendors": ["15b3"], "linkTypes": ["IB", "eth"]},
                },
                {"resourceName": "other", "rdmaHcaMax": 3, "selectors": {"pfNames": ["*#0-3"], "numaNodes": [0, 1]}},
            ]
        }
    ),
    "config.json",
)
RESOURCE = "rdma/hca_shared_devices_a"
SERVICE = "/v1beta1.DevicePlugin/"
METHODS = (
    f"{SERVICE}Allocate",
    f"{SERVICE}GetPreferredAllocation",
    f"{SERVICE}PreStartContainer",
    f"{SERVICE}GetDevicePluginOptions",
    f"{SERVICE}Nothing",
    "/pluginregistration.Registration/GetInfo",
)
CLEAN = {
    grpc.StatusCode.OK,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}
UNDECODABLE = "Error parsing message"
"""gRPC's own answer to bytes that are no message of the method, with the status UNKNOWN."""


class Tree:
    """A laid-out node whose attributes can be changed and put back."""

    def __init__(self, root: Path) -> None:
        nodes.lay_out(nodes.load(nodes.MLX4), root)
        self.root = root
        self.texts = {
            path: path.read_bytes()
            for path in sorted((root / "sys").rglob("*"))
            if path.is_file() and not path.is_symlink() and "gids" not in path.parts and "gid_attrs" not in path.parts
        }
        self.paths = list(self.texts)


class Target:
    """The process, and a connection to its socket that carries bytes as they are."""

    def __init__(self, process: PluginProcess, path: str) -> None:
        self.process = process
        self._seen = 0
        self.channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.default_authority", "localhost")])
        self.calls: dict[str, Any] = {method: self.channel.unary_unary(method) for method in METHODS}

    def new_lines(self) -> list[Line]:
        """Return what was logged since the last look."""
        lines = self.process.lines
        new, self._seen = lines[self._seen :], len(lines)
        return new

    def call(self, method: str, payload: bytes) -> tuple[grpc.StatusCode, str]:
        """Send it; return the status and its text."""
        try:
            self.calls[method](payload, timeout=5)
        except grpc.RpcError as err:
            call: Any = err  # one object that is both error and call, which types-grpcio can't express
            return call.code(), call.details()
        return grpc.StatusCode.OK, ""
