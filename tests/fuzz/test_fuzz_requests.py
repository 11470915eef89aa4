# SPDX-License-Identifier: Apache-2.0
"""gRPC requests of any bytes to the real process: an answer or a clean status, quickly, and a log without tracebacks."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from tests.fuzz.doors import CLEAN, METHODS, UNDECODABLE, Target
from tests.fuzz.examples import TIMEOUT_S, inputs
from tests.fuzz.mutations import mutated

_ID = st.one_of(st.integers(-2, 250).map(str), st.text(max_size=8), st.just("7"), st.just("x" * 5000))
_IDS = st.lists(_ID, max_size=5)
_ALLOCATE = st.builds(
    lambda containers: pb.AllocateRequest(
        container_requests=[pb.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
    ),
    st.lists(_IDS, max_size=4),
)
_PREFERRED = st.builds(
    lambda available, required, size: pb.PreferredAllocationRequest(
        container_requests=[
            pb.ContainerPreferredAllocationRequest(
                available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
            )
        ]
    ),
    _IDS,
    _IDS,
    st.integers(-(2**31), 2**31 - 1),
)
_VALID = st.one_of(_ALLOCATE, _PREFERRED).map(lambda request: bytes(request.SerializeToString()))
_PAYLOAD = st.one_of(_VALID, mutated(_VALID), st.binary(max_size=200))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S)]


@inputs(short=200)
@given(st.sampled_from(METHODS), _PAYLOAD)
def test_any_bytes_to_any_method(target: Target, method: str, payload: bytes) -> None:
    """The status is one that a kubelet can show, its text no program's innards; the next good call is served."""
    code, text = target.call(method, payload)
    assert code in CLEAN or (code is grpc.StatusCode.UNKNOWN and UNDECODABLE in text), (code, text)
    assert target.call(METHODS[0], b"") == (grpc.StatusCode.OK, "")
    for line in target.new_lines():
        assert "error" not in line, line  # a traceback
