# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the real process."""

import contextlib
import http.client
import json
import re
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.conftest import plugin_arguments
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.plugin import PluginProcess

RESOURCE = "rdma/hca_shared_devices_a"
pytestmark = pytest.mark.slow


class Answer(NamedTuple):
    """An HTTP answer."""

    code: int
    kind: str
    body: str


@pytest.fixture
def fake(short_dir: Path) -> Iterator[FakeKubelet]:
    """A running kubelet."""
    with FakeKubelet(short_dir / "kubelet") as kubelet:
        yield kubelet


@pytest.fixture
def process(fake: FakeKubelet, dgx: Path, config: Path) -> Iterator[PluginProcess]:
    """The plugin with its HTTP server on a free port."""
    with PluginProcess(*plugin_arguments(fake, dgx, config), "--http-address", "127.0.0.1:0") as running:
        yield running


def port_of(process: PluginProcess) -> int:
    """The port that the system chose."""
    line = process.wait_line(lambda line: line["event"] == "http server listens")
    return int(line["address"].rpartition(":")[2])


def ask(process: PluginProcess, path: str, method: str = "GET") -> Answer:
    """Send one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(process), timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    return Answer(answer.status, answer.headers["Content-Type"] or "", answer.read().decode())


def wait_ready(process: PluginProcess, fake: FakeKubelet) -> None:
    """Wait until the kubelet reads the list and the plugin knows it."""
    fake.wait_slots(RESOURCE, 200)
    process.wait_line(lambda line: line["event"] == "registered")


def test_ready_and_live(process: PluginProcess, fake: FakeKubelet) -> None:
    """Ready with a live stream; not ready, with the reason, once the kubelet is gone; live all the time."""
    wait_ready(process, fake)
    assert ask(process, "/readyz") == (200, "text/plain; charset=utf-8", "ready\n")
    assert ask(process, "/livez")[0] == 200
    count = len(process.lines)
    fake.stop()
    process.wait_line(lambda line: "registration ended" in line["event"], after=count)
    answer = ask(process, "/readyz")
    assert answer.code == 503
    assert answer.body.startswith(RESOURCE)
    assert ask(process, "/livez").code == 200
    fake.start()
    process.wait_line(lambda line: line["event"] == "registered", after=count)
    assert ask(process, "/readyz").code == 200


def test_bad_configuration_is_in_the_readiness_detail(process: PluginProcess, fake: FakeKubelet, config: Path) -> None:
    """A refused edit leaves the plugin ready and is told in the body and in a metric."""
    wait_ready(process, fake)
    config.write_text("{}")
    process.wait_line(lambda line: line["level"] == "error")
    answer = ask(process, "/readyz")
    assert answer.code == 200
    assert "configuration: the running one stays" in answer.body
    assert "rdma_plugin_config_valid 0.0" in ask(process, "/metrics").body


def test_debug_status_is_explain_and_more(process: PluginProcess, fake: FakeKubelet) -> None:
    """The same document as `explain --json`, with the kubelet's side of each resource."""
    wait_ready(process, fake)
    document = json.loads(ask(process, "/debug/status").body)
    (resource,) = document["resources"]
    assert resource["name"] == RESOURCE
    assert (resource["capacity"], resource["healthy"], resource["devices"]) == (200, 200, ["mlx5_0"])
    assert (resource["registered"], resource["mode"], resource["streams"]) == (True, "kubelet", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*", resource["lastContact"])
    assert len(document["verdicts"]) == 11


def test_metrics(process: PluginProcess, fake: FakeKubelet) -> None:
    """Valid exposition with the project's names; counters are there at zero and count."""
    wait_ready(process, fake)

    def series() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        families = text_string_to_metric_families(ask(process, "/metrics").body)
        samples = [sample for family in families for sample in family.samples]
        assert all(sample.name.startswith("rdma_plugin_") for sample in samples)
        return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}

    def key(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        return (f"rdma_plugin_{name}", tuple(sorted(labels.items())))

    before = series()
    assert before[key("slots", resource=RESOURCE, health="healthy")] == 200
    assert before[key("slots", resource=RESOURCE, health="unhealthy")] == 0
    assert before[key("ready", resource=RESOURCE)] == 1
    assert before[key("device_selected", resource=RESOURCE, device="mlx5_0")] == 1
    assert before[key("device_selected", resource=RESOURCE, device="mlx5_1")] == 0
    assert before[key("port_active", device="mlx5_2", port="1")] == 0
    assert before[key("allocations_total", resource=RESOURCE, outcome="success")] == 0
    assert before[key("allocations_total", resource=RESOURCE, outcome="failure")] == 0
    assert before[key("config_reloads_total", outcome="failure")] == 0
    fake.run_pod("one", {RESOURCE: 1}, "")
    after = series()
    assert after[key("allocations_total", resource=RESOURCE, outcome="success")] == 1
    assert after.keys() == before.keys()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_only_get(process: PluginProcess, method: str) -> None:
    """Nothing can be changed."""
    assert ask(process, "/metrics", method).code == 501


def test_unknown_path(process: PluginProcess) -> None:
    """An unknown path says which there are."""
    answer = ask(process, "/../etc/passwd")
    assert answer.code == 404
    assert "/readyz" in answer.body


def test_slow_clients_hold_up_nobody(process: PluginProcess) -> None:
    """Clients that say nothing or dribble are cut off after two seconds; meanwhile others are answered."""
    address = ("127.0.0.1", port_of(process))
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(address)) for _ in range(5)]
        for client in slow:
            client.sendall(b"GET /met")
            client.settimeout(10)
        assert ask(process, "/livez").code == 200
        with contextlib.suppress(ConnectionError):  # cut while it still dribbles
            while not select.select([slow[0]], [], [], 0.2)[0]:
                slow[0].sendall(b"x")
        for client in slow[1:]:
            assert client.recv(100) == b""
        assert ask(process, "/livez").code == 200


def test_address_in_use_is_taken_when_free(fake: FakeKubelet, dgx: Path, config: Path) -> None:
    """Two instances on one host network (a rolling update): the second says so, works, and listens when it can."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        with PluginProcess(*plugin_arguments(fake, dgx, config), "--http-address", address) as process:
            line = process.wait_line(lambda line: line["event"].startswith("http address can't be had"))
            assert line["why"] == "Address already in use"
            fake.wait_slots(RESOURCE, 200)
            holder.close()
            process.wait_line(lambda line: line["event"] == "http server listens")
            assert process.stop() == 0


def test_empty_address_means_no_server(fake: FakeKubelet, dgx: Path, config: Path) -> None:
    """As a flag and as a variable."""
    for arguments, env in (([], {"RDMA_PLUGIN_HTTP_ADDRESS": ""}), (["--http-address", ""], {})):
        with PluginProcess(*plugin_arguments(fake, dgx, config), *arguments, env=env) as process:
            process.wait_line(lambda line: line["event"] == "registered")
            assert not [line for line in process.lines if "http" in line["event"]]


def test_request_that_is_no_protobuf_costs_one_line(process: PluginProcess, fake: FakeKubelet) -> None:
    """Bytes that can't be decoded get an error and leave no traceback in the log."""
    wait_ready(process, fake)
    (path,) = fake.device_plugin_dir.glob("rdma-plugin_*.sock")
    with grpc.insecure_channel(f"unix:{path}") as channel:
        call: Any = channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
        with pytest.raises(grpc.RpcError):
            call(b"\xff")
    process.wait_line(lambda line: "Unexpected" in line["event"])
    assert "Traceback" not in process.text
    assert ask(process, "/readyz").code == 200
