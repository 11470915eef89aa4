# SPDX-License-Identifier: Apache-2.0
"""The commands: `rdma-plugin run | discover | explain | check-config`.

Every flag is also an environment variable `RDMA_PLUGIN_…`. Exit codes: 0 done or asked to stop, 1 failed,
2 configuration or command line. Only this module and `__main__` read the environment or end the process.
"""

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

import typer

import rdma_plugin
from rdma_plugin import log
from rdma_plugin.core import config as config_module
from rdma_plugin.core import explain as explain_module
from rdma_plugin.core import parse
from rdma_plugin.core import pools as pools_module
from rdma_plugin.core import suggest as suggest_module
from rdma_plugin.core.config import Config
from rdma_plugin.core.errors import HostError, RdmaPluginError
from rdma_plugin.core.model import Inventory
from rdma_plugin.host import config_file
from rdma_plugin.host.look import Look
from rdma_plugin.kubelet.mode import Mode
from rdma_plugin.options import CONFIG_PATHS, ConfigOption, FormatOption, JsonOption, LevelOption, RootOption

HTTP_ADDRESS: Final = "127.0.0.1:8081"
EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2

logger = logging.getLogger(__name__)
app = typer.Typer(
    name="rdma-plugin",
    help="Share a node's RDMA devices (HCAs) between pods, and say why each one is in or out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:  # noqa: FBT001 - the shape that typer wants
    if value:
        typer.echo(f"rdma-plugin {rdma_plugin.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def run(  # noqa: PLR0913 - one parameter for each flag
    *,
    root: RootOption = Path("/"),
    config: ConfigOption = None,
    registration: Annotated[
        Mode,
        typer.Option(
            envvar="RDMA_PLUGIN_REGISTRATION",
            case_sensitive=False,
            help="How to reach the kubelet: kubelet.sock, the plugin watcher, or auto: kubelet.sock where it answers.",
        ),
    ] = Mode.AUTO,
    device_plugin_dir: Annotated[
        Path,
        typer.Option(
            envvar="RDMA_PLUGIN_DEVICE_PLUGIN_DIR", metavar="DIR", readable=False, help="Directory of kubelet.sock."
        ),
    ] = Path("/var/lib/kubelet/device-plugins"),
    plugin_registry_dir: Annotated[
        Path,
        typer.Option(
            envvar="RDMA_PLUGIN_PLUGIN_REGISTRY_DIR",
            metavar="DIR",
            readable=False,
            help="Directory of the plugin watcher.",
        ),
    ] = Path("/var/lib/kubelet/plugins_registry"),
    plugin_registry_host_path: Annotated[
        str | None,
        typer.Option(
            envvar="RDMA_PLUGIN_PLUGIN_REGISTRY_HOST_PATH",
            metavar="DIR",
            help="The plugin watcher's directory as the kubelet sees it; default: the same as --plugin-registry-dir.",
        ),
    ] = None,
    http_address: Annotated[
        str | None,
        typer.Option(
            envvar="RDMA_PLUGIN_HTTP_ADDRESS",
            metavar="HOST:PORT",
            help=f"Where /metrics, /livez, /readyz and /debug/status are served; default {HTTP_ADDRESS}, empty for nowhere.",
        ),
    ] = None,
    log_level: LevelOption = log.LogLevel.INFO,
    log_format: FormatOption = log.LogFormat.AUTO,
) -> None:
    """Serve the configured resources to the kubelet until asked to stop."""
    log.set_up(log_level, log_format)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines on stderr would stand between the JSON ones
    from rdma_plugin.daemon import Daemon, Settings  # noqa: PLC0415 - grpc costs memory that the other commands don't need

    file, text, loaded = _load(config)
    settings = Settings(
        root=root,
        config=file,
        registration=registration,
        device_plugin_dir=device_plugin_dir,
        plugin_registry_dir=plugin_registry_dir,
        plugin_registry_host_path=PurePosixPath(plugin_registry_host_path or plugin_registry_dir),
        http_address=_address(http_address),
    )

    async def serve() -> None:
        await Daemon(settings, loaded, text).run()

    try:
        asyncio.run(serve())
    except ExceptionGroup as group:
        for err in group.exceptions:
            traceback = None if isinstance(err, RdmaPluginError) else err
            logger.critical("ending, because a part failed", extra={"why": str(err)}, exc_info=traceback)
        raise typer.Exit(EXIT_FAILED) from group


@app.command()
def discover(
    *,
    root: RootOption = Path("/"),
    as_json: JsonOption = False,
    suggest: Annotated[bool, typer.Option("--suggest", help="Print a configuration for this node.")] = False,
    log_level: LevelOption = log.LogLevel.WARNING,
    log_format: FormatOption = log.LogFormat.AUTO,
) -> None:
    """Show every RDMA device of the node."""
    log.set_up(log_level, log_format)
    inventory = _scan(root)
    if suggest:
        if not inventory.devices:
            raise HostError("the node has no RDMA device, so there is nothing to suggest; see `rdma-plugin discover`")
        _print_json(suggest_module.suggest(inventory))
    elif as_json:
        _print_json(explain_module.discovery(inventory))
    else:
        from rdma_plugin import tables  # noqa: PLC0415 - rich only where a table is printed

        tables.discovery(inventory)


@app.command()
def explain(
    *,
    root: RootOption = Path("/"),
    config: ConfigOption = None,
    as_json: JsonOption = False,
    log_level: LevelOption = log.LogLevel.WARNING,
    log_format: FormatOption = log.LogFormat.AUTO,
) -> None:
    """Say what each resource would offer on this node, and why each device is in or out."""
    log.set_up(log_level, log_format)
    _, _, loaded = _load(config)
    inventory = _scan(root)
    pools = pools_module.build(loaded, inventory, {})
    if as_json:
        _print_json(explain_module.report(inventory, pools))
    else:
        from rdma_plugin import tables  # noqa: PLC0415 - rich only where a table is printed

        tables.explanation(pools, explain_module.all_problems(inventory, pools))


@app.command()
def check_config(
    *,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", readable=False, help="Configuration to check.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of the configuration.")] = False,
    log_level: LevelOption = log.LogLevel.WARNING,
    log_format: FormatOption = log.LogFormat.AUTO,
) -> None:
    """Check a configuration file, or print its JSON Schema."""
    log.set_up(log_level, log_format)
    if schema:
        _print_json(config_module.json_schema())
        return
    _, _, loaded = _load(file)
    for resource in loaded.config_list:
        typer.echo(f"{resource.full_name}: valid, {resource.rdma_hca_max} slots")
        if resource.problem:
            typer.echo(f"  but {resource.problem.why}; {resource.problem.hint}")


def _scan(root: Path) -> Inventory:
    """Look at the host once; a device that hangs costs itself only (H5)."""
    look = Look(root)
    try:
        return asyncio.run(look.scan())
    finally:
        look.close()


def _load(path: Path | None) -> tuple[Path, bytes, Config]:
    """Return the configuration file that is used, its bytes, and what they mean."""
    if path is None:
        path = next((candidate for candidate in CONFIG_PATHS if candidate.exists()), CONFIG_PATHS[0])
    text = config_file.read(path)
    return path, text, config_module.parse(text, str(path))


def _address(given: str | None) -> tuple[str, int] | None:
    # typer takes an empty variable for one that isn't set, but here it says "nowhere"
    text = os.environ.get("RDMA_PLUGIN_HTTP_ADDRESS", HTTP_ADDRESS) if given is None else given
    address = parse.host_port(text)
    if text and address is None:
        example = "write for example 127.0.0.1:8081, or nothing for no HTTP server"
        raise typer.BadParameter(f"{text!r} is not HOST:PORT; {example}", param_hint="--http-address")
    return address


def _print_json(document: Mapping[str, object]) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
