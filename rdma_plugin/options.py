# SPDX-License-Identifier: Apache-2.0
"""Flags that several commands have, each with its environment variable."""

from pathlib import Path
from typing import Annotated, Final

import typer

from rdma_plugin import log

CONFIG_PATHS: Final = (Path("/etc/rdma-plugin/config.json"), Path("/k8s-rdma-shared-dev-plugin/config.json"))
"""Where the configuration is looked for; the second is the path of Mellanox/k8s-rdma-shared-dev-plugin."""

RootOption = Annotated[
    Path,
    typer.Option(
        "--root",
        envvar="RDMA_PLUGIN_ROOT",
        metavar="DIR",
        readable=False,
        help="Directory that holds the node's sys and dev.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="RDMA_PLUGIN_CONFIG",
        metavar="FILE",
        readable=False,  # config_file says it better
        help=f"Configuration; default {CONFIG_PATHS[0]}, or {CONFIG_PATHS[1]} where only that exists.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LevelOption = Annotated[
    log.LogLevel,
    typer.Option("--log-level", envvar="RDMA_PLUGIN_LOG_LEVEL", help="Least serious log line.", case_sensitive=False),
]
FormatOption = Annotated[
    log.LogFormat,
    typer.Option(
        "--log-format",
        envvar="RDMA_PLUGIN_LOG_FORMAT",
        case_sensitive=False,
        help="Log lines: auto is text at a terminal, else JSON.",
    ),
]
