# SPDX-License-Identifier: Apache-2.0
"""Character devices of RDMA: which ones sysfs promises, and whether /dev has them.

`join` reads the class directories and gives each RDMA device its uverbs, umad and issm by the text of `ibdev`, the only
safe way: numbers aren't related and are reused at once (V4, V5). `check` looks at one node in /dev, now; it also runs
when the kubelet asks for the node. No node is ever opened.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rdma_plugin.core import parse
from rdma_plugin.core.model import CharKind, CharNode, Problem
from rdma_plugin.host import files

_CLASSES = ("infiniband_verbs", "infiniband_mad")
_CLASS_OF = {CharKind.UVERBS: _CLASSES[0], CharKind.UMAD: _CLASSES[1], CharKind.ISSM: _CLASSES[1]}
_NAME = re.compile(r"(uverbs|umad|issm)\d+")
_RDMA_CM = "class/misc/rdma_cm"


def join(root: Path, top: str) -> tuple[dict[str, tuple[CharNode, ...]], tuple[Problem, ...]]:
    """Return the checked nodes of each ibdev, by name, and what is wrong with entries that name no ibdev.

    `top` is the real path of the root's `sys`.
    """
    nodes: dict[str, list[CharNode]] = {}
    problems = []
    for directory, match in _entries(top):
        ibdev = files.read(top, f"{directory}/ibdev")
        if ibdev.text:
            nodes.setdefault(ibdev.text, []).append(
                _node(root, top, directory, match.group(0), CharKind(match.group(1)), ibdev.text)
            )
        else:
            problems.append(files.problem(match.group(0), ibdev))
    ordered = {ibdev: tuple(sorted(found, key=lambda node: parse.natural(node.name))) for ibdev, found in nodes.items()}
    return ordered, tuple(problems)


def read_rdma_cm(root: Path, top: str) -> CharNode | None:
    """Return the checked connection manager node; None if rdma_ucm isn't loaded."""
    directory = files.resolve(top, _RDMA_CM)
    return _node(root, top, directory, "rdma_cm", CharKind.RDMA_CM) if directory else None


def check(root: Path, node: CharNode) -> Problem | None:
    """Return why this node can't be given to a pod now; None if it can.

    Numbers are reused at once when a driver is reloaded (V5), so what sysfs says of the node is read again: it must
    still be the same HCA's. `root` holds `sys` and `dev`; the texts name paths as the host has them.
    """
    return _changed(str(root / "sys"), node) or _look(root, node)


def _changed(top: str, node: CharNode) -> Problem | None:
    directory = _RDMA_CM if node.kind is CharKind.RDMA_CM else f"class/{_CLASS_OF[node.kind]}/{node.name}"
    number = parse.device_number(files.read(top, f"{directory}/dev").text)
    ibdev = files.read(top, f"{directory}/ibdev").text or None
    is_same = ibdev == node.ibdev or (ibdev is not None and _has_guid(top, ibdev, node.guid))
    if node.major is None or (is_same and number == (node.major, node.minor)):
        return None
    is_gone = number is None
    return Problem(
        f"{node.name}: {'no longer there' if is_gone else 'now another device'}",
        f"{files.host_path(directory)} {'is gone' if is_gone else f'now belongs to {ibdev}'} since the last look at the host",
        "nothing: the host is looked at again by itself",
    )


def _has_guid(top: str, ibdev: str, guid: str | None) -> bool:
    """Return whether a device is the HCA of this GUID under a new name (D13)."""
    return guid is not None and files.read(top, f"class/infiniband/{ibdev}/node_guid").text == guid


def _look(root: Path, node: CharNode) -> Problem | None:
    """Return why /dev doesn't have this character device, following links; None if it does."""
    if node.major is None or node.minor is None:
        why = "its `dev` file in sysfs can't be read, so the node can't be compared with it"
        return Problem(
            f"{node.name}: its device number is unknown", why, "look for errors of the device's driver: dmesg"
        )
    try:
        found = (root / node.path.lstrip("/")).stat()
    except FileNotFoundError:
        what = f"{node.name}: {node.path} doesn't exist"
        why = f"the kernel has the character device {node.major}:{node.minor}, but /dev has no node for it"
        return Problem(
            what,
            why,
            "see whether the host has the node: ls -l /dev/infiniband; in a pod, mount the host's /dev/infiniband",
        )
    except (OSError, ValueError) as error:
        hint = "check the permissions of /dev/infiniband and, with SELinux, its label"
        return Problem(f"{node.name}: {node.path} can't be looked at", f"{node.path}: {files.reason(error)}", hint)
    if not stat.S_ISCHR(found.st_mode):
        what = f"{node.name}: {node.path} is no character device"
        return Problem(
            what,
            f"it is {files.kind(found.st_mode)}",
            f"remove it and let udev make the node again: udevadm trigger {node.path}",
        )
    major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
    if (major, minor) != (node.major, node.minor):
        what = f"{node.name}: {node.path} is another device"
        why = f"the node is {major}:{minor}, the kernel's number is {node.major}:{node.minor}"
        return Problem(
            what, why, "remove the node and reload the driver, or mount the host's /dev/infiniband instead of a copy"
        )
    return None


def _entries(top: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield real directories of character devices; plain files such as abi_version lie between them."""
    for kind in _CLASSES:
        for name, directory in files.directories(top, files.resolve(top, f"class/{kind}")).items():
            match = _NAME.fullmatch(name)
            if match:
                yield directory, match


def _node(root: Path, top: str, directory: str, name: str, kind: CharKind, ibdev: str | None = None) -> CharNode:
    number = parse.device_number(files.read(top, f"{directory}/dev").text)
    has_port = kind in (CharKind.UMAD, CharKind.ISSM)
    node = CharNode(
        kind=kind,
        name=name,
        path=f"/dev/infiniband/{name}",
        major=number[0] if number else None,
        minor=number[1] if number else None,
        ibdev=ibdev,
        port=parse.decimal(files.read(top, f"{directory}/port").text) if has_port else None,
    )
    return replace(node, problem=_look(root, node))
