# SPDX-License-Identifier: Apache-2.0
"""A fake kubelet as a process of its own, so that it can be stopped without closing anything: `python -m … ROOT RULE`.

Writes `ready` when it listens; ends when its standard input does.
"""

import sys
from pathlib import Path
from typing import Any, cast

from tests.fakes.kubelet import FakeKubelet


def main() -> None:
    """Run until nobody holds the other end of standard input."""
    root, rule = sys.argv[1:]
    with FakeKubelet(Path(root), rule=cast("Any", rule)):
        print("ready", flush=True)  # noqa: T201 - the parent waits for it
        sys.stdin.read()


if __name__ == "__main__":
    main()
