# SPDX-License-Identifier: Apache-2.0
"""Discovery on broken and hostile trees: nothing raises or hangs, healthy devices stay as they were, the rest is said."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdma_plugin.core.errors import HostError
from rdma_plugin.core.model import CharKind, Inventory, RdmaDevice
from rdma_plugin.host import files, netdevs, pci, scan
from rdma_plugin.host.sysfs import Surroundings
from tests.fakes import nodes
from tests.fakes.nodes_format import FunctionSpec, Holder, Node, PortSpec, RdmaSpec

Damage = Callable[[Path], None]

_VICTIM = "mlx5_1"
_FUNCTION = "sys/bus/pci/devices/0000:29:00.0"


def _without(path: str) -> Damage:
    def damage(root: Path) -> None:
        _remove(root / path)

    return damage


def _text(path: str, content: bytes) -> Damage:
    def damage(root: Path) -> None:
        _remove(root / path)
        (root / path).write_bytes(content)

    return damage


def _directory(path: str) -> Damage:
    def damage(root: Path) -> None:
        _remove(root / path)
        (root / path).mkdir()

    return damage


def _fifo(path: str) -> Damage:
    def damage(root: Path) -> None:
        _remove(root / path)
        os.mkfifo(root / path)

    return damage


def _link(path: str, target: str) -> Damage:
    def damage(root: Path) -> None:
        _remove(root / path)
        (root / path).symlink_to(target.format(root=root))

    return damage


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _said(inventory: Inventory) -> str:
    """Return all that an inventory says about trouble, as text."""
    found = [*inventory.problems, *(problem for device in inventory.devices for problem in device.problems)]
    found += [node.problem for device in inventory.devices for node in device.char_nodes if node.problem]
    return "\n".join(f"{problem.what}; {problem.why}; {problem.hint}" for problem in found)


def _device(inventory: Inventory, name: str = _VICTIM) -> RdmaDevice:
    return next(device for device in inventory.devices if device.name == name)


_PORT = f"sys/class/infiniband/{_VICTIM}/ports/1"

_DAMAGES = {
    "class link dangling": (_link(f"sys/class/infiniband/{_VICTIM}", "../../devices/gone"), "'mlx5_1': not a device"),
    "class link to itself": (_link(f"sys/class/infiniband/{_VICTIM}", _VICTIM), "'mlx5_1': not a device"),
    "class link out of the root": (_link(f"sys/class/infiniband/{_VICTIM}", "/etc"), "'mlx5_1': not a device"),
    "class link to another place": (_link(f"sys/class/infiniband/{_VICTIM}", "../net"), "'mlx5_1': not a device"),
    "class link to sys itself": (_link(f"sys/class/infiniband/{_VICTIM}", "../.."), "'mlx5_1': not a device"),
    "state missing": (_without(f"{_PORT}/state"), "mlx5_1 port 1: state can't be read"),
    "state a directory": (_directory(f"{_PORT}/state"), "/state: is a directory"),
    "state a FIFO": (_fifo(f"{_PORT}/state"), "/state: is a FIFO"),
    "state a device": (_link(f"{_PORT}/state", "/dev/zero"), "/state: is a symbolic link"),
    "state garbage": (_text(f"{_PORT}/state", b"\x00\xff\xfe\x1b[2J"), "mlx5_1 port 1: state makes no sense"),
    "state empty": (_text(f"{_PORT}/state", b""), "state makes no sense"),
    "link layer huge": (_text(f"{_PORT}/link_layer", b"x" * 5_000_000), "has more than 4096 bytes"),
    "rate garbage": (_text(f"{_PORT}/rate", b"fast\n"), "says 'fast'"),
    "ports missing": (_without(f"sys/class/infiniband/{_VICTIM}/ports"), "mlx5_1: no ports"),
    "ports a file": (_text(f"sys/class/infiniband/{_VICTIM}/ports", b"1"), "mlx5_1: no ports"),
    "ports out of the root": (_link(f"sys/class/infiniband/{_VICTIM}/ports", "/proc/1/task"), "mlx5_1: no ports"),
    "port number odd": (_link(f"sys/class/infiniband/{_VICTIM}/ports", "net"), "mlx5_1: no ports"),
    "GUID garbage": (_text(f"sys/class/infiniband/{_VICTIM}/node_guid", b"\xff" * 20), "node_guid makes no sense"),
    "NUMA node garbage": (_text(f"{_FUNCTION}/numa_node", b"many\n"), "0000:29:00.0: numa_node makes no sense"),
    "NUMA node huge": (_text(f"{_FUNCTION}/numa_node", b"9" * 4000), "0000:29:00.0: numa_node makes no sense"),
    "vendor missing": (_without(f"{_FUNCTION}/vendor"), "/0000:29:00.0/vendor: doesn't exist"),
    "driver in a loop": (_link(f"{_FUNCTION}/driver", "driver"), "0000:29:00.0: driver can't be told"),
    "driver out of the root": (_link(f"{_FUNCTION}/driver", "/usr"), "0000:29:00.0: driver can't be told"),
    "uverbs gone": (_without("sys/class/infiniband_verbs/uverbs1"), "mlx5_1: no uverbs device"),
    "uverbs link loop": (_link("sys/class/infiniband_verbs/uverbs1", "uverbs1"), "mlx5_1: no uverbs device"),
    "ibdev empty": (_text("sys/class/infiniband_verbs/uverbs1/ibdev", b"\n"), "uverbs1: ibdev makes no sense"),
    "ibdev a directory": (_directory("sys/class/infiniband_verbs/uverbs1/ibdev"), "uverbs1: ibdev can't be read"),
    "number garbage": (
        _text("sys/class/infiniband_verbs/uverbs1/dev", b"231"),
        "uverbs1: its device number is unknown",
    ),
    "number of another": (_text("sys/class/infiniband_verbs/uverbs1/dev", b"231:9"), "uverbs1 is another device"),
    "node missing": (_without("dev/infiniband/uverbs1"), "/dev/infiniband/uverbs1 doesn't exist"),
    "node a plain file": (_text("dev/infiniband/uverbs1", b""), "it is a plain file"),
    "node a directory": (_directory("dev/infiniband/uverbs1"), "it is a directory"),
    "node a loop": (_link("dev/infiniband/uverbs1", "uverbs1"), "uverbs1 can't be looked at"),
    "node dangling": (_link("dev/infiniband/uverbs1", "uverbs99"), "/dev/infiniband/uverbs1 doesn't exist"),
}


@pytest.fixture
def dgx(root: Path) -> Path:
    """Lay out a DGX node."""
    nodes.lay_out(nodes.load(nodes.DGX), root)
    return root


@pytest.mark.parametrize(("damage", "words"), _DAMAGES.values(), ids=_DAMAGES)
def test_damage_costs_only_what_it_hits(dgx: Path, damage: Damage, words: str) -> None:
    """The other devices are exactly as before, the trouble is said, and no path in it is below the root."""
    before = scan.scan(dgx)
    damage(dgx)

    after = scan.scan(dgx)

    assert [device for device in after.devices if device.name != _VICTIM] == [
        device for device in before.devices if device.name != _VICTIM
    ]
    assert words in _said(after)
    assert str(dgx) not in _said(after)


def test_unreadable_attribute_costs_only_itself(dgx: Path) -> None:
    """A device whose port state and NUMA node can't be read keeps all else (D12)."""
    before = _device(scan.scan(dgx))
    _directory(f"{_PORT}/state")(dgx)
    _directory(f"{_FUNCTION}/numa_node")(dgx)

    after = _device(scan.scan(dgx))

    assert after.ports[0].state is None
    assert after.numa_node is None
    assert (after.ports[0].link_type, after.netdevs, after.char_nodes) == (
        before.ports[0].link_type,
        before.netdevs,
        before.char_nodes,
    )
    assert len(after.problems) == 2


def test_permission_denied_is_said_in_the_systems_words(dgx: Path) -> None:
    """A file without read permission is a problem for an ordinary user; root reads it all the same."""
    attribute = dgx / _FUNCTION / "numa_node"
    attribute.chmod(0)

    device = _device(scan.scan(dgx))

    is_readable = os.access(attribute, os.R_OK)
    assert device.numa_node == (0 if is_readable else None)
    assert ["Permission denied" in problem.why for problem in device.problems] == [True] * (not is_readable)


def test_class_directory_out_of_the_root_shows_nothing(dgx: Path, tmp_path: Path) -> None:
    """A whole tree outside is not read through links, absolute or relative, at any level."""
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.move(dgx / "sys", outside / "sys")
    (dgx / "sys/class/infiniband").mkdir(parents=True)
    (dgx / "sys/class/infiniband/mlx5_0").symlink_to((outside / "sys/class/infiniband/mlx5_0").resolve())
    up = os.path.relpath(outside / "sys/class/infiniband/mlx5_3", dgx / "sys/class/infiniband")
    (dgx / "sys/class/infiniband/mlx5_3").symlink_to(up)
    (dgx / "sys/class/infiniband_verbs").symlink_to(outside / "sys/class/infiniband_verbs")

    inventory = scan.scan(dgx)

    assert inventory.devices == ()
    assert "'mlx5_0': not a device" in _said(inventory)
    assert "'mlx5_3': not a device" in _said(inventory)


def test_plain_files_between_class_links_are_skipped(dgx: Path) -> None:
    """abi_version and its like are normal and said by nobody."""
    (dgx / "sys/class/infiniband/abi_version").write_text("6\n")
    (dgx / "sys/class/net/bonding_masters").write_text("\n")

    inventory = scan.scan(dgx)

    assert len(inventory.devices) == 11
    assert inventory.problems == ()


def test_undecodable_name_is_no_device(dgx: Path) -> None:
    """A name that no terminal and no JSON can show is said in escaped form."""
    entries = os.fsencode(dgx / "sys/class/infiniband")
    os.symlink(os.readlink(entries + b"/mlx5_0"), entries + b"/\xff\xfe")

    inventory = scan.scan(dgx)

    assert len(inventory.devices) == 11
    assert r"'\udcff\udcfe': not a device" in _said(inventory)


def test_rxe_parent_that_is_a_path_is_not_followed(root: Path) -> None:
    """Text that isn't an interface name names no interface, whatever it points to."""
    nodes.lay_out(nodes.load(nodes.ALL[5]), root)
    (root / "sys/class/infiniband/rxe0/parent").write_bytes(b"../../devices\0x\n")

    assert _device(scan.scan(root), "rxe0").netdevs == ()


def test_rxe_parent_elsewhere_is_no_interface(root: Path) -> None:
    """A soft-RoCE device whose interface is in a pod has none on the host."""
    nodes.lay_out(nodes.load(nodes.ALL[5]), root)
    (root / "sys/class/infiniband/rxe0/parent").write_text("net1\n")

    assert _device(scan.scan(root), "rxe0").netdevs == ()


def test_no_sys_is_a_host_error(root: Path) -> None:
    """Only a root whose sys can't be listed fails as a whole; the error names it."""
    with pytest.raises(HostError, match="can't be listed: No such file or directory"):
        scan.scan(root)


def test_sys_that_is_a_file_is_a_host_error(root: Path) -> None:
    """The system's reason is in the text."""
    (root / "sys").touch()

    with pytest.raises(HostError, match="Not a directory"):
        scan.scan(root)


def test_node_without_rdma_says_what_to_load(root: Path) -> None:
    """An empty sys is no error: zero devices, one problem with a hint (E5)."""
    (root / "sys").mkdir()

    inventory = scan.scan(root)

    assert inventory.devices == ()
    assert [problem.what for problem in inventory.problems] == ["no RDMA devices"]
    assert "modprobe mlx5_ib" in inventory.problems[0].hint


def test_missing_ib_uverbs_is_said_once(dgx: Path) -> None:
    """Without the class the module is missing: one problem of the node, not eleven of its devices."""
    shutil.rmtree(dgx / "sys/class/infiniband_verbs")

    inventory = scan.scan(dgx)

    assert [problem.hint for problem in inventory.problems] == ["load ib_uverbs: modprobe ib_uverbs"]
    assert [problem for device in inventory.devices for problem in device.problems] == []


def test_unexpected_error_leaves_the_identity(dgx: Path) -> None:
    """Whatever goes wrong in the middle of a device, its name and PCI address remain, with the error's words."""

    def fail(_holder: str) -> netdevs.Interfaces:
        raise RuntimeError("out of luck")

    top = files.top_of(dgx)
    path = files.resolve(top, f"class/infiniband/{_VICTIM}")
    assert path is not None
    around = Surroundings(
        top=top,
        char_nodes={},
        has_uverbs_class=False,
        gpu_paths=(),
        links={},
        port_netdevs={},
        read_interfaces=fail,
        read_vf_indices=lambda pf: pci.read_vf_indices(top, pf),
    )

    device = scan.read_device(around, _VICTIM, path)

    assert device.pci is not None
    assert device.pci.address == "0000:29:00.0"
    assert "RuntimeError: out of luck" in device.problems[0].why


def test_rename_in_the_middle_makes_a_second_pass(dgx: Path) -> None:
    """A pass that a rename overtakes is done once more with the new names (D13)."""
    entries = dgx / "sys/class/infiniband"
    passes = []

    def read(names: tuple[str, ...]) -> tuple[str, ...]:
        if not passes:
            (entries / "mlx5_0").rename(entries / "ibp24s0")
        passes.append(names)
        return names

    found = scan.settled(lambda: files.names(str(dgx / "sys"), "class/infiniband"), read)

    assert len(passes) == 2
    assert "ibp24s0" in found
    assert "mlx5_0" not in found


def test_quiet_host_is_read_once() -> None:
    """Without a change there is no second pass."""
    passes = []

    scan.settled(lambda: ("mlx5_0",), passes.append)

    assert passes == [("mlx5_0",)]


@pytest.mark.slow
def test_thousand_devices(root: Path) -> None:
    """A thousand devices are read in few seconds of CPU time, each with its uverbs node."""
    port = PortSpec(n=1, link="IB", state="active", rate="400 Gb/sec (4X NDR)", gid_table=0)
    functions = tuple(
        FunctionSpec(
            address=f"0000:{number >> 3:02x}:00.{number & 7}",
            parts=("pci0000:00", f"0000:{number >> 3:02x}:00.{number & 7}"),
            id="15b3:1021",
            class_code="020700",
            driver="mlx5_core",
            rdma=(RdmaSpec(name=f"mlx5_{number}", guid=f"58a2:e103:0000:{number:04x}", ports=(port,), uverbs=number),),
        )
        for number in range(1000)
    )
    node = Node(
        name="many",
        functions=functions,
        virtual=Holder(),
        modules=frozenset({"ib_uverbs", "rdma_ucm"}),
        rdma_cm=122,
        netns_mode="shared",
        numa={},
        bridges={},
        dev={"missing": [], "dirs": [], "files": []},
        expect={},
    )
    nodes.lay_out(node, root, "links")
    start = time.process_time()

    inventory = scan.scan(root)

    assert time.process_time() - start < 5
    assert [device.name for device in inventory.devices] == [f"mlx5_{number}" for number in range(1000)]
    assert all(device.char_nodes[0].kind is CharKind.UVERBS and not device.problems for device in inventory.devices)


def _chmod_nothing(path: Path) -> None:
    if not path.is_symlink():
        path.chmod(0)


_MUTATIONS: dict[str, Callable[[Path, bytes], object]] = {
    "remove": lambda path, _: _remove(path),
    "forbid": lambda path, _: _chmod_nothing(path),
    "fill": lambda path, content: (_remove(path), path.write_bytes(content)),
    "flood": lambda path, content: (_remove(path), path.write_bytes((content or b"0") * 5000)),
    "directory": lambda path, _: (_remove(path), path.mkdir()),
    "fifo": lambda path, _: (_remove(path), os.mkfifo(path)),
    "loop": lambda path, _: (_remove(path), path.symlink_to(path.name)),
    "up": lambda path, _: (_remove(path), path.symlink_to("..")),
    "escape": lambda path, _: (_remove(path), path.symlink_to("/")),
    "dangle": lambda path, _: (_remove(path), path.symlink_to("../nowhere")),
    "rename": lambda path, content: path.rename(path.with_name(f"{path.name}{content.hex()[:8]}")),
}


@pytest.mark.slow
@settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from([nodes.BLUEFIELD, nodes.ALL[4]]),
    changes=st.lists(
        st.tuples(st.integers(0, 100_000), st.sampled_from(sorted(_MUTATIONS)), st.binary(max_size=40)),
        min_size=1,
        max_size=25,
    ),
)
def test_mutated_tree_never_raises(root: Path, path: Path, changes: list[tuple[int, str, bytes]]) -> None:
    """Whatever is removed, replaced, bent or renamed: a scan ends, in order, without a path of the root in it."""
    for part in ("sys", "dev"):
        shutil.rmtree(root / part, ignore_errors=True)
    nodes.lay_out(nodes.load(path), root, "links")
    places = sorted(place for place in root.rglob("*") if len(place.relative_to(root).parts) > 1)
    for index, mutation, content in changes:
        place = places[index % len(places)]
        if os.path.lexists(place) and os.access(place.parent, os.W_OK | os.X_OK):
            _MUTATIONS[mutation](place, content)

    inventory = scan.scan(root)

    _allow_all(root)
    assert list(inventory.problems) == sorted(inventory.problems)
    assert all(node.path.startswith("/dev/infiniband/") for device in inventory.devices for node in device.char_nodes)
    assert str(root) not in _said(inventory)


def _allow_all(root: Path) -> None:
    """Give back the permissions that removing needs."""
    for directory, names, _ in os.walk(root):
        for name in names:
            path = Path(directory, name)
            if not path.is_symlink():
                path.chmod(0o755)
