# SPDX-License-Identifier: Apache-2.0
"""Our values into the kubelet's messages: a pool into its list, an allocation into a container's answer.

Decides nothing: what is healthy and which nodes an answer holds was settled before. Nothing of the pool but its slots
goes into the list, so equal slots make equal lists.
"""

from rdma_plugin.core.allocation import Allocation
from rdma_plugin.core.pool import Pool
from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb

VERSION = "v1beta1"
"""The API version that both sides compare (k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go)."""
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
PERMISSIONS = "rw"
"""No `m`: a container has no business making device nodes (Y3)."""


def device_list(pool: Pool) -> pb.ListAndWatchResponse:
    """Return the list that the kubelet gets for the pool; slots without NUMA nodes carry no topology at all (T2)."""
    hints = {
        numa_nodes: pb.TopologyInfo(nodes=[pb.NUMANode(ID=number) for number in numa_nodes])
        for numa_nodes in {slot.numa_nodes for slot in pool.slots}
        if numa_nodes
    }
    response = pb.ListAndWatchResponse()
    add = response.devices.add  # a fifth of the time that a list of messages takes, and the loop waits for it
    for slot in pool.slots:
        add(ID=slot.id, health=HEALTHY if slot.is_healthy else UNHEALTHY, topology=hints.get(slot.numa_nodes))
    return response


def container_answer(allocation: Allocation) -> pb.ContainerAllocateResponse:
    """Return what one container gets: each node at the path that it has on the host (X7)."""
    return pb.ContainerAllocateResponse(
        envs=dict(allocation.env),
        devices=[
            pb.DeviceSpec(container_path=node.path, host_path=node.path, permissions=PERMISSIONS)
            for node in allocation.nodes
        ],
    )
