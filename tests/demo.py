# SPDX-License-Identifier: Apache-2.0
"""`make demo`: the main job on a simulated GPU node, without root and without a cluster.

Laid out: a DGX H100's sysfs and /dev/infiniband as real files, and an embedded kubelet on real unix sockets. Real: the
`rdma-plugin` program itself, started as a user would start it. Char nodes can't be made without root, so the laid-out
nodes are links to /dev/null and the laid-out sysfs states /dev/null's number: the plugin's check stays as strict as ever.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.fakes import nodes, places
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.plugin import EXAMPLE_CONFIG, PluginProcess

RESOURCE = "rdma/hca_shared_devices_a"
NODE = Path(__file__).parent / "nodes" / "a-dgx-h100.yaml"


def say(text: str = "") -> None:
    """Print one line at once."""
    print(text, flush=True)  # noqa: T201 - the demo's output


def head(number: int, text: str) -> None:
    """Print a step's headline."""
    say(f"\n\033[1m{number}. {text}\033[0m" if sys.stdout.isatty() else f"\n{number}. {text}")


def rdma_plugin(*arguments: str) -> str:
    """Run a command of the real program and return what it prints."""
    command = [sys.executable, "-m", "rdma_plugin", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip()


def indent(text: str) -> str:
    """Shift a block to the right."""
    return "\n".join(f"   {line}".rstrip() for line in text.splitlines())


def show_log(lines: list[Mapping[str, object]]) -> None:
    """Print the plugin's own account of what it did, without the device by device part."""
    for line in lines:
        if not str(line["event"]).startswith("device "):
            fields = " ".join(f"{key}={value}" for key, value in line.items() if key not in {"time", "level", "event"})
            say(f"   {line['level']:<8}{line['event']}: {fields}")


def demo(root: Path) -> None:
    """Run the steps; raises if one doesn't do what the README promises."""
    started = time.monotonic()
    node = root / "node"
    config = root / "config.json"
    nodes.lay_out(nodes.load(NODE, changes={"net ibp24s0": {"name": "ibs108"}}), node)
    config.write_text(json.dumps(EXAMPLE_CONFIG, indent=2))

    head(1, "The node: a DGX H100. `rdma-plugin discover` sees")
    columns = ("name", "pciAddress", "driver", "netdevs", "linkTypes", "numaNode", "nearestGpu", "charDevices")
    for device in json.loads(rdma_plugin("discover", "--root", str(node), "--json"))["devices"]:
        cells = [device[column] for column in columns]
        texts = [
            " ".join(Path(part).name for part in cell) if isinstance(cell, list) else str(cell or "-") for cell in cells
        ]
        say("   {:<8} {:<13} {:<10} {:<13} {:<11} numa {:<2} gpu {:<13} {}".format(*texts))

    head(2, "The configuration, as users of Mellanox/k8s-rdma-shared-dev-plugin have it")
    say(indent(json.dumps(EXAMPLE_CONFIG["configList"][0])))

    head(3, "`rdma-plugin explain` says why each device is in or out")
    say(indent(rdma_plugin("explain", "--root", str(node), "--config", str(config))))

    head(4, "The kubelet starts, then the real `rdma-plugin run`")
    with FakeKubelet(root / "kubelet") as kubelet:
        flags = ["--root", str(node), "--config", str(config)]
        flags += ["--device-plugin-dir", str(kubelet.device_plugin_dir)]
        flags += ["--plugin-registry-dir", str(kubelet.plugin_registry_dir)]
        with PluginProcess(*flags) as plugin:
            slots = kubelet.wait_slots(RESOURCE, 200)
            show_log(plugin.lines)

            head(5, "What the node shows")
            say(f"   capacity     {RESOURCE}: {len(slots)}")
            say(f"   allocatable  {RESOURCE}: {sum(slots.values())}")

            head(6, f"A pod asks for {RESOURCE}: 1. The kubelet calls Allocate; its container gets")
            pod = kubelet.run_pod("nccl-test", {RESOURCE: 1}, "")
            require(pod.phase == "Running", pod)
            require("/dev/infiniband/uverbs0 rw" in pod.logs and "/dev/infiniband/rdma_cm rw" in pod.logs, pod)
            say(indent(pod.logs))
            say(f"   slot {kubelet.allocated(RESOURCE)['nccl-test'][0]!r} is taken, 199 are left")

            head(7, "A pod asks for 201. It isn't admitted, and the reason is the kubelet's")
            greedy = kubelet.run_pod("greedy", {RESOURCE: 201}, "")
            require(greedy.phase == "Failed", greedy)
            say(f"   {greedy.reason}: {greedy.message}")

            head(8, "The kubelet restarts and deletes every socket. The plugin comes back on its own")
            restarted = time.monotonic()
            kubelet.restart()
            kubelet.wait_slots(RESOURCE, 200)
            say(f"   200 slots again {(time.monotonic() - restarted) * 1000:.0f} ms later, and nobody did anything")
            require(plugin.stop() == 0, plugin.text)
    say(
        f"\nDone in {time.monotonic() - started:.1f} s. On a real node: `rdma-plugin discover`, then `rdma-plugin explain`."
    )


def require(held: bool, what: object) -> None:
    """Raise SystemExit with what was seen, if a step didn't hold."""
    if not held:
        raise SystemExit(f"demo failed: {what}")


def main() -> None:
    """Run the demo in a folder that is removed again."""
    with places.short_dir() as root:
        demo(root)


if __name__ == "__main__":
    main()
