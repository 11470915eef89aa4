# SPDX-License-Identifier: Apache-2.0
"""The metrics that are documented are those that there are."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from rdma_plugin import metrics
from rdma_plugin.core import pools
from rdma_plugin.core.changes import View
from rdma_plugin.core.status import Link, Status
from tests.core.values import config, hca, node

DOCUMENT = Path(__file__).parents[2] / "docs" / "observability.md"


def test_documented_metrics_are_the_real_ones() -> None:
    """Each row of the table is a series with these labels, and each series has its row."""
    inventory = node(hca(0))
    view = View(inventory=inventory, pools=pools.build(config(), inventory, {}))
    status = Status(version="1", view=view, links=(Link(resource="rdma/a"),))
    families = text_string_to_metric_families(metrics.text(status).decode())
    real = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    rows = re.findall(r"^\| `(rdma_plugin_\w+)` \| ([^|]*)\|", DOCUMENT.read_text(), re.MULTILINE)
    documented = {
        name: {label.split()[0] for label in re.sub(r"\([^)]*\)", "", labels).split(",") if label.strip()}
        for name, labels in rows
    }
    assert documented == real


def test_before_the_first_scan() -> None:
    """There is an exposition even if the host was never read."""
    text = metrics.text(Status(version="1", host_fault="hangs")).decode()
    assert "rdma_plugin_host_readable 0.0" in text
