# SPDX-License-Identifier: Apache-2.0
"""Socket names, and what may be removed from the kubelet's directories."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

import pytest

from rdma_plugin.core.errors import KubeletError
from rdma_plugin.kubelet import paths


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    """Keeps live sockets open until the end of a test."""
    with ExitStack() as stack:
        yield stack


def make_socket(path: Path, stack: ExitStack | None) -> Path:
    """Make a socket at a path: live while `stack` is, dead without one."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    if stack is None:
        made.close()
    else:
        made.listen()
        stack.enter_context(made)
    return path


def age(path: Path, seconds: float) -> None:
    """Make a file look older."""
    status = path.stat()
    os.utime(path, (status.st_atime - seconds, status.st_mtime - seconds))


def test_names_are_never_the_same() -> None:
    """Each registration has a name of its own, which shows the resource."""
    names = {paths.fresh_name("rdma/hca_a", PurePosixPath("/x")) for _ in range(50)}
    assert len(names) == 50
    assert all(name.startswith("rdma-plugin_rdma_hca_a_") and name.endswith(".sock") for name in names)


def test_long_resource_name_is_cut_to_fit_all_directories() -> None:
    """The longest resource name fits, private name included, in our directory and in the kubelet's."""
    ours, kubelets = PurePosixPath("/dp"), PurePosixPath("/var/lib/kubelet/device-plugins")
    name = paths.fresh_name("example.com/" + "é" + "n" * 63, ours, kubelets)
    private = paths.private(Path(kubelets / name))
    assert len(os.fsencode(private)) == paths.MAX_PATH_BYTES


def test_directory_without_room_is_named() -> None:
    """A directory too long for any socket name is an error that says how much too long."""
    directory = PurePosixPath("/" + "d" * 90)
    with pytest.raises(KubeletError, match=r"/ddd.*107 bytes.*shorter"):
        paths.fresh_name("rdma/a", directory)


def test_only_our_dead_sockets_are_removed(short_dir: Path, sockets: ExitStack) -> None:
    """Dead sockets of our name go; files, links, other names, live sockets and young private ones stay."""
    gone = [
        make_socket(short_dir / "rdma-plugin_a_1.sock", None),
        make_socket(short_dir / ".rdma-plugin_a_2.sock", None),
    ]
    age(gone[1], paths.PRIVATE_AGE_S + 1)
    make_socket(short_dir / "rdma-plugin_live_3.sock", sockets)
    make_socket(short_dir / ".rdma-plugin_young_4.sock", None)
    make_socket(short_dir / "other.sock", None)
    make_socket(short_dir / "rdma-plugin_other.socket", None)
    (short_dir / "rdma-plugin_file_5.sock").write_text("a file")
    (short_dir / "rdma-plugin_link_6.sock").symlink_to("other.sock")
    (short_dir / "rdma-plugin_dir_7.sock").mkdir()
    before = set(short_dir.iterdir())
    own = make_socket(short_dir / "rdma-plugin_own_8.sock", None)
    seen = paths.survey(short_dir, {own})
    assert set(seen.removed) == set(gone)
    assert before - set(short_dir.iterdir()) == set(gone)
    assert own.exists()
    assert {path.name for path in seen.others} == {"rdma-plugin_live_3.sock", ".rdma-plugin_young_4.sock"}


def test_removal_from_a_missing_directory() -> None:
    """No directory, nothing to remove, no error."""
    assert paths.survey(Path("/nonexistent/device-plugins"), ()) == paths.Survey({}, {})


def test_successor_at_our_path_is_not_removed(short_dir: Path, sockets: ExitStack) -> None:
    """A socket that took our path after ours was deleted stays, even with the same inode number."""
    path = make_socket(short_dir / "rdma-plugin_a_1.sock", None)
    first = paths.identify(path)
    assert first is not None
    path.unlink()
    make_socket(path, sockets)
    age(path, -1)
    assert not paths.remove(path, first)
    second = paths.identify(path)
    assert second is not None
    assert paths.remove(path, second)
    assert not path.exists()


def test_new_mode_is_the_same_socket(short_dir: Path) -> None:
    """A relabelled or chmodded socket is still the one that it was."""
    path = make_socket(short_dir / "kubelet.sock", None)
    before = paths.identify(path)
    path.chmod(0o600)
    assert paths.identify(path) == before


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: path.parent, "makes it when it starts"),
        (lambda path: make_socket(path, None), "down or starting"),
        (lambda path: path.write_text("a file"), "Connection refused"),
    ],
    ids=["missing", "dead", "file"],
)
def test_kubelet_that_does_not_answer_is_explained(short_dir: Path, make: object, text: str) -> None:
    """Each way in which nobody answers has its own reason and hint."""
    path = short_dir / "kubelet.sock"
    assert callable(make)
    make(path)
    with pytest.raises(KubeletError, match=text) as caught:
        paths.probe(path)
    assert str(path) in str(caught.value)


def test_missing_directory_names_the_flag(short_dir: Path) -> None:
    """A directory that isn't mounted is told from a kubelet that isn't there."""
    with pytest.raises(KubeletError, match=r"mount .*--device-plugin-dir"):
        paths.probe(short_dir / "gone" / "kubelet.sock")
    with pytest.raises(KubeletError, match=r"No such file.*--plugin-registry-dir"):
        paths.check_directory(short_dir / "gone", "--plugin-registry-dir")


def test_denied_directory_names_selinux(short_dir: Path) -> None:
    """A refusal by permissions says what to look at; root is refused only by SELinux and its like."""
    if os.geteuid() == 0:
        error = PermissionError(13, "Permission denied")
        assert "SELinux" in paths.hint(error, short_dir, "--device-plugin-dir")
        return
    short_dir.chmod(0o500)
    with pytest.raises(KubeletError, match="SELinux"):
        paths.check_directory(short_dir, "--device-plugin-dir")
    short_dir.chmod(0o700)


def test_live_kubelet_is_identified(short_dir: Path, sockets: ExitStack) -> None:
    """Somebody who listens is proof enough, and says which socket it is."""
    path = make_socket(short_dir / "kubelet.sock", sockets)
    assert paths.probe(path) == paths.identify(path)


def test_directory_check_leaves_nothing_behind(short_dir: Path) -> None:
    """The trial socket is removed."""
    paths.check_directory(short_dir, "--device-plugin-dir")
    assert list(short_dir.iterdir()) == []


def test_published_socket_is_private_to_root(short_dir: Path, sockets: ExitStack) -> None:
    """The public socket is mode 0600 and the private name is gone."""
    path = short_dir / "rdma-plugin_a_1.sock"
    make_socket(paths.private(path), sockets)
    assert paths.publish(path) == paths.identify(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(short_dir.iterdir()) == [path]


def test_socket_that_vanished_cannot_be_published(short_dir: Path) -> None:
    """A kubelet that starts deletes sockets; the error says so."""
    with pytest.raises(KubeletError, match="starting kubelet"):
        paths.publish(short_dir / "rdma-plugin_a_1.sock")


def test_resources_with_long_names_are_told_apart() -> None:
    """Names that only differ where they are cut belong to different resources; those of one resource belong together."""
    directory = PurePosixPath("/var/lib/kubelet/device-plugins")
    long = "rdma.accelerators.infrastructure.example.com/hca"
    a, b, again = (
        paths.family(Path(paths.fresh_name(name, directory))) for name in (f"{long}_a", f"{long}_b", f"{long}_a")
    )
    assert a == again != b
