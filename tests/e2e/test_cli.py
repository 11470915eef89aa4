# SPDX-License-Identifier: Apache-2.0
"""The command line as a person or a script uses it: what it prints, and how it ends."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rdma_plugin
from rdma_plugin.__main__ import main
from rdma_plugin.core import config as config_module
from tests.core.corpus import HOSTILE
from tests.fakes import nodes
from tests.fakes.plugin import EXAMPLE_CONFIG

NODES = sorted((Path(__file__).parents[1] / "nodes").glob("*.yaml"))
VARIANTS = [(path, variant) for path in NODES for variant in (None, *nodes.variants(path))]
DEVICE_KEYS = {
    *("name", "pciAddress", "vendor", "device", "driver", "netdevs", "linkTypes", "ports", "numaNode", "pf", "vfIndex"),
    *("sfIndex", "management", "charDevices", "problems"),
}
"""Keys of a device that others rely on."""


class Result(NamedTuple):
    """How a command ended."""

    code: object
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line in this process."""

    def call(*arguments: str | Path) -> Result:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Result(ended.value.code, out, err)

    return call


def process(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process of its own."""
    command = [sys.executable, "-m", "rdma_plugin", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, **options)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example configuration."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(EXAMPLE_CONFIG))
    return path


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_configuration_is_one_message_and_exit_2(run: Run, tmp_path: Path, text: bytes) -> None:
    """Whatever the file holds: exit code 2, a message of bounded length that names the file, no traceback."""
    path = tmp_path / "hostile.json"
    path.write_bytes(text)
    result = run("check-config", path)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"{path}: ")
    assert "Traceback" not in result.err
    assert all(line.startswith(str(path)) for line in result.err.splitlines())
    assert len(result.err) < 50_000


def test_paths_that_are_no_configuration(run: Run, tmp_path: Path) -> None:
    """A missing file, a directory, a FIFO, a device: each is one line that says what it is."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, word in [
        (tmp_path / "none.json", "doesn't exist"),
        (tmp_path, "is a directory"),
        (fifo, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (loop, "symbolic links"),
    ]:
        result = run("check-config", path)
        assert (result.code, result.err.count("\n")) == (2, 1), result
        assert word in result.err


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "explain", "check-config"])
def test_bad_configuration_ends_the_process_with_2(tmp_path: Path, command: str) -> None:
    """As a process: exit code 2 and a message on stderr for every command that reads the configuration."""
    path = tmp_path / "bad.json"
    path.write_text('{"configList": [{"resourceName": "a", "rdmaHcaMax": 1, "selectors": {"vendor": ["15b3"]}}]}')
    flags = [path] if command == "check-config" else ["--config", path]
    result = process(command, *flags)
    assert result.returncode == 2
    assert 'selectors.vendor: unknown key; did you mean "vendors"?' in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def unreadable(short_dir: Path) -> Iterator[Path]:
    """A file that this process can't read; root reads every file, so it acts as nobody meanwhile."""
    path = short_dir / "config.json"
    path.write_text("{}")
    path.chmod(0)
    if os.geteuid() != 0:
        yield path
        return
    os.seteuid(65534)
    yield path
    os.seteuid(0)


def test_unreadable_file(run: Run, unreadable: Path) -> None:
    """A file without read permission is one line that says so."""
    result = run("check-config", unreadable)
    assert (result.code, "Permission denied" in result.err) == (2, True)


def test_valid_configuration(run: Run, example: Path) -> None:
    """A valid file is said resource by resource."""
    assert run("check-config", example) == (0, "rdma/hca_shared_devices_a: valid, 200 slots\n", "")


def test_name_that_no_kubelet_takes_is_said(run: Run, tmp_path: Path) -> None:
    """The peer's own README has a prefix that the kubelet refuses: the file loads, the trouble is stated."""
    path = tmp_path / "peer.json"
    resource = EXAMPLE_CONFIG["configList"][0] | {"resourcePrefix": "example_prefix"}
    path.write_text(json.dumps({"configList": [resource]}))
    result = run("check-config", path)
    assert result.code == 0
    assert "is not a DNS name" in result.out


def test_schema_is_the_one_in_the_docs(run: Run) -> None:
    """`check-config --schema` prints what docs/config.schema.json holds."""
    printed = json.loads(run("check-config", "--schema").out)
    assert printed == config_module.json_schema()
    assert printed == json.loads((Path(__file__).parents[2] / "docs" / "config.schema.json").read_text())


@pytest.mark.parametrize(("path", "variant"), VARIANTS, ids=lambda value: getattr(value, "stem", str(value)))
def test_every_node_is_explained(run: Run, tmp_path: Path, short_dir: Path, path: Path, variant: str | None) -> None:
    """On each described node: a line for each device and resource, a reason and a hint for each zero, in both forms."""
    root = short_dir / "node"
    nodes.lay_out(nodes.load(path, variant), root)
    config = tmp_path / "config.json"
    base = {"rdmaHcaMax": 10}
    resources = [
        base | {"resourceName": "mellanox", "selectors": {"vendors": ["15b3"]}},
        base | {"resourceName": "ib", "selectors": {"linkTypes": ["infiniband"]}, "exclude": {"ifNames": ["ib0"]}},
        base | {"resourceName": "roce", "selectors": {"linkTypes": ["roce"], "numaNodes": [1]}},
        base | {"resourceName": "soft", "selectors": {"drivers": ["rdma_rxe", "siw"]}},
        base | {"resourceName": "none", "selectors": {"ifNames": ["nosuch0"]}},
        base | {"resourceName": "vf", "selectors": {"pfNames": ["ens1f0np0#0-1"], "rootDevices": ["41:00.0"]}},
        base | {"resourceName": "all", "selectors": {"rdmaDevices": ["*"]}, "health": "all", "includeManagement": True},
    ]
    config.write_text(json.dumps({"configList": resources}))

    discovered = json.loads(run("discover", "--root", root, "--json").out)
    names = [device["name"] for device in discovered["devices"]]
    assert set(names) == set(nodes.load(path, variant).expect["rdma"])
    assert all(set(device) >= DEVICE_KEYS for device in discovered["devices"])
    table = run("discover", "--root", root)
    assert (table.code, table.err) == (0, "")
    assert all(name in table.out for name in names)

    report = json.loads(run("explain", "--root", root, "--config", config, "--json").out)
    assert set(report) == {"resources", "verdicts", "problems"}
    assert len(report["verdicts"]) == len(names) * len(resources)
    for verdict in report["verdicts"]:
        assert set(verdict) == {"device", "resource", "selected", "reason"}
        assert verdict["reason"].strip()
        assert "\n" not in verdict["reason"]
        assert len(verdict["reason"]) < 300
    for resource in report["resources"]:
        assert set(resource) == {"name", "capacity", "healthy", "devices", "reason", "hint"}
        assert resource["reason"]
        assert resource["hint"] or (resource["capacity"] == 10 and resource["healthy"] == 10), resource
    for problem in report["problems"] + discovered["problems"]:
        assert all(problem[key] for key in ("what", "why", "hint"))
    printed = run("explain", "--root", root, "--config", config)
    assert (printed.code, printed.err) == (0, "")
    assert all(resource["reason"] in printed.out for resource in report["resources"])


@pytest.mark.parametrize("path", NODES, ids=lambda path: path.stem)
def test_suggestion_loads_and_selects(run: Run, short_dir: Path, path: Path) -> None:
    """`discover --suggest` prints a configuration that is valid and offers something on this very node."""
    root = short_dir / "node"
    nodes.lay_out(nodes.load(path), root)
    suggestion = run("discover", "--root", root, "--suggest")
    config = short_dir / "suggested.json"
    config.write_text(suggestion.out)
    report = json.loads(run("explain", "--root", root, "--config", config, "--json").out)
    assert report["resources"]
    assert all(resource["devices"] for resource in report["resources"])


def test_nothing_to_suggest(run: Run, short_dir: Path) -> None:
    """A node without RDMA devices gets no invented configuration."""
    (short_dir / "sys").mkdir()
    result = run("discover", "--root", short_dir, "--suggest")
    assert (result.code, result.out) == (1, "")
    assert "no RDMA device" in result.err


def test_root_that_is_no_node(run: Run, tmp_path: Path) -> None:
    """A root without `sys` is one line and exit code 1."""
    result = run("discover", "--root", tmp_path / "none")
    assert (result.code, result.out) == (1, "")
    assert str(tmp_path / "none") in result.err
    assert "Traceback" not in result.err


def test_version_and_help(run: Run) -> None:
    """`--version` prints the version, `--help` every command, and `run --help` every variable."""
    assert run("--version").out == f"rdma-plugin {rdma_plugin.__version__}\n"
    assert all(command in run("--help").out for command in ("run", "discover", "explain", "check-config"))
    text = run("run", "--help").out
    for name in (
        "ROOT",
        "CONFIG",
        "REGISTRATION",
        "DEVICE_PLUGIN_DIR",
        "PLUGIN_REGISTRY_DIR",
        "LOG_LEVEL",
        "LOG_FORMAT",
    ):
        assert f"RDMA_PLUGIN_{name}" in text


@pytest.mark.parametrize("arguments", [["run", "--registration", "x"], ["nosuch"], ["explain", "--nosuch"]])
def test_wrong_command_line(run: Run, arguments: list[str]) -> None:
    """A wrong flag or command ends with 2 and says which."""
    result = run(*arguments)
    assert result.code == 2
    assert arguments[-1] in result.err


@pytest.mark.slow
def test_output_into_a_closed_pipe(short_dir: Path) -> None:
    """`rdma-plugin discover | head -1` ends quietly."""
    root = short_dir / "node"
    nodes.lay_out(nodes.load(NODES[0]), root)
    with subprocess.Popen(
        [sys.executable, "-m", "rdma_plugin", "discover", "--root", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        assert "Traceback" not in command.stderr.read()


def test_narrow_terminal(run: Run, short_dir: Path) -> None:
    """Where a table doesn't fit, a device is a few lines, and no word of it is cut."""
    root = short_dir / "node"
    nodes.lay_out(nodes.load(NODES[0]), root)
    command = f"stty cols 80; exec {sys.executable} -m rdma_plugin discover --root {root}"
    shown = in_terminal(command)
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "pci address 0000:18:00.0, id 15b3:1021, driver mlx5_core" in shown
    assert run("discover", "--root", root).out.count("\n") == 13


def in_terminal(command: str) -> str:
    """Run a shell command with a terminal as its output; return what it shows, without colours."""
    leader, follower = os.openpty()
    with subprocess.Popen(["sh", "-c", command], stdin=follower, stdout=follower, stderr=follower) as child:
        os.close(follower)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the last one at the other end has gone
            while part := os.read(leader, 65536):
                shown += part
        os.close(leader)
        assert child.wait() == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r", "")


@pytest.mark.slow
def test_names_that_a_terminal_would_obey(short_dir: Path) -> None:
    """An interface may be called nearly anything: escape sequences come out as text, and odd bytes break nothing."""
    root = short_dir / "node"
    nodes.lay_out(nodes.load(NODES[0]), root)
    interface = (root / "sys/class/net/ibp24s0").resolve()
    os.rename(os.fsencode(interface), os.fsencode(interface.parent) + b"/\x1b[31mX\xff")  # noqa: PTH104 - bytes that are no text
    config = short_dir / "config.json"
    config.write_text(json.dumps(EXAMPLE_CONFIG))
    for arguments in (["discover"], ["discover", "--json"], ["explain", "--config", config]):
        result = process(*arguments, "--root", root, env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"})
        assert (result.returncode, result.stderr) == (0, "")
        assert "\x1b" not in result.stdout
    json.loads(process("discover", "--json", "--root", root).stdout)


@pytest.mark.slow
@pytest.mark.parametrize("sink", [">/dev/full", ">&-", "2>&-"])
def test_output_that_cannot_be_written(short_dir: Path, sink: str) -> None:
    """A full disk or a closed stream is at most one line, never a traceback."""
    root = short_dir / "node"
    nodes.lay_out(nodes.load(NODES[0]), root)
    for flags in ("", "--json"):
        command = f"{sys.executable} -m rdma_plugin discover --root {root} {flags} {sink}"
        result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert "Traceback" not in result.stderr
        assert result.stderr.count("\n") <= 1
