# SPDX-License-Identifier: Apache-2.0
"""What a kubelet says on its pod resources socket: the devices it would hand out now.

Asked with gRPC's generic call and read by field number, so that the rig needs no generated code. Field numbers are
those of k8s.io/kubelet `podresources/v1/api.proto`.
"""

from collections.abc import Iterator
from pathlib import Path

import grpc

METHOD = "/v1.PodResourcesLister/GetAllocatableResources"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at` and the offset behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes, wanted: int) -> Iterator[bytes]:
    """Each length-delimited field (text, bytes, message) numbered `wanted` of one protobuf message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            _, at = _varint(data, at)
        elif wire_type == 2:
            length, at = _varint(data, at)
            if number == wanted:
                yield data[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {wire_type} is not used by this API")


def allocatable(socket: Path, resource: str, deadline_s: float = 5) -> set[str]:
    """The ids that the kubelet's device manager holds as healthy for `resource`, in use or not.

    Raises:
        ConnectionError: the kubelet doesn't answer.
    """
    # The authority would else be the socket's path, which Go's gRPC server refuses.
    with grpc.insecure_channel(f"unix://{socket}", options=[("grpc.default_authority", "localhost")]) as channel:
        ask = channel.unary_unary(METHOD, request_serializer=bytes, response_deserializer=bytes)
        try:
            answer = ask(b"", timeout=deadline_s)
        except grpc.RpcError as err:
            why = getattr(err, "details", lambda: "no answer")()  # str(err) runs over many lines
            raise ConnectionError(f"pod resources API: {why}") from err
    ids: set[str] = set()
    for devices in _fields(answer, 1):
        if resource.encode() in _fields(devices, 1):
            ids.update(slot.decode() for slot in _fields(devices, 2))
    return ids
