# SPDX-License-Identifier: Apache-2.0
"""Our values as the kubelet gets them."""

import pytest

from rdma_plugin.core.allocation import Allocation
from rdma_plugin.kubelet import messages
from tests.kubelet.running import char, pool


def test_list_has_ids_health_and_topology() -> None:
    """Each slot is a device with its id, its health and the NUMA nodes of the pool."""
    devices = messages.device_list(pool("+-", numa_nodes=(0, 1))).devices
    assert [(device.ID, device.health) for device in devices] == [("0", "Healthy"), ("1", "Unhealthy")]
    assert [node.ID for node in devices[1].topology.nodes] == [0, 1]


def test_unknown_numa_node_is_no_topology() -> None:
    """Without a known NUMA node the hint is left out, not empty."""
    (device,) = messages.device_list(pool("+")).devices
    assert not device.HasField("topology")


@pytest.mark.slow
def test_largest_list_fits_older_kubelets() -> None:
    """100 000 slots with two NUMA nodes stay below the 4 MiB that kubelets took before the limit was raised."""
    assert messages.device_list(pool("+" * 100_000, numa_nodes=(0, 1))).ByteSize() < 4 << 20


def test_answer_has_nodes_and_variables() -> None:
    """A node is read and written at the path that it has on the host; no mount, annotation or CDI name is added."""
    allocation = Allocation(nodes=(char("rdma_cm"), char("uverbs0")), env=(("RDMA_A", "mlx5_0"),), devices=("mlx5_0",))
    answer = messages.container_answer(allocation)
    assert [(spec.container_path, spec.host_path, spec.permissions) for spec in answer.devices] == [
        ("/dev/infiniband/rdma_cm", "/dev/infiniband/rdma_cm", "rw"),
        ("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0", "rw"),
    ]
    assert dict(answer.envs) == {"RDMA_A": "mlx5_0"}
    assert [*answer.mounts, *answer.annotations, *answer.cdi_devices] == []
