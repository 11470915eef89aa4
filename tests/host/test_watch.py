# SPDX-License-Identifier: Apache-2.0
"""Directory events by inotify."""

import asyncio
import logging
from pathlib import Path

import pytest

from rdma_plugin.host import watch


@pytest.mark.parametrize("event", ["created", "deleted", "renamed"])
async def test_change_of_an_entry_wakes(tmp_path: Path, event: str) -> None:
    """A socket or file that comes, goes or is renamed wakes the loop."""
    (tmp_path / "old").touch()
    woken = asyncio.Event()
    with watch.directories([tmp_path], woken.set):
        if event == "created":
            (tmp_path / "new").touch()
        elif event == "deleted":
            (tmp_path / "old").unlink()
        else:
            (tmp_path / "old").rename(tmp_path / "other")
        async with asyncio.timeout(5):
            await woken.wait()


async def test_missing_directory_is_said_and_the_others_still_wake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory that isn't there costs nothing but a line that names it and the true reason."""
    caplog.set_level(logging.INFO)
    woken = asyncio.Event()
    with watch.directories([tmp_path / "none", tmp_path], woken.set):
        (tmp_path / "new").touch()
        async with asyncio.timeout(5):
            await woken.wait()
    (record,) = [record for record in caplog.records if record.name == "rdma_plugin.host.watch"]
    assert "looked at every second" in record.getMessage()
    assert vars(record)["directory"] == str(tmp_path / "none")
    assert vars(record)["why"] == "No such file or directory"
