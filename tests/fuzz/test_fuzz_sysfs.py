# SPDX-License-Identifier: Apache-2.0
"""Sysfs attributes with any text: the scan, the pools and the report come through and stay printable.

One small node is laid out once; each input rewrites a few of its attributes and puts them back.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdma_plugin.core import explain, pools, suggest
from rdma_plugin.host import glance, scan
from tests.fuzz.doors import CONFIG, Tree
from tests.fuzz.examples import TIMEOUT_S, inputs
from tests.fuzz.mutations import mutated

_TEXTS = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode(errors="surrogatepass")),
    st.integers(-(2**70), 2**70).map(lambda number: str(number).encode()),
    st.sampled_from([b"", b"\n", b"4: ACTIVE\n", b"InfiniBand\n", b"0x15b3\n", b"mlx5_0\n", b"231:192\n", b"9" * 4097]),
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S)]


@inputs(short=60)
@given(st.data())
def test_any_text_in_any_attribute(tree: Tree, data: st.DataObject) -> None:
    """No error, no lost device, and everything that is said can be printed and encoded."""
    chosen = data.draw(st.lists(st.integers(0, len(tree.paths) - 1), min_size=1, max_size=12, unique=True))
    paths = [tree.paths[index] for index in chosen]
    try:
        for path in paths:
            path.write_bytes(data.draw(st.one_of(_TEXTS, mutated(st.just(tree.texts[path])))))
        inventory = scan.scan(tree.root)
        offered = pools.build(CONFIG, inventory, {})
        reports = [explain.discovery(inventory), explain.report(inventory, offered), suggest.suggest(inventory)]
        glance.glance(tree.root, inventory.devices, [])
    finally:
        for path in paths:
            path.write_bytes(tree.texts[path])
    assert len(inventory.devices) == len(scan.scan(tree.root).devices)
    for problem in explain.all_problems(inventory, offered):
        assert f"{problem.what}{problem.why}{problem.hint}".isprintable()
    for report in reports:
        json.dumps(report).encode()
