# SPDX-License-Identifier: Apache-2.0
"""Where the program begins and ends: `rdma-plugin` and `python -m rdma_plugin`.

Errors are one readable message and an exit code, never a traceback.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from rdma_plugin import cli
from rdma_plugin.core.errors import ConfigError, RdmaPluginError


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process; errors are one readable message and an exit code, never a traceback.

    `arguments` are those of the process if None.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where a caller has closed it
            stream.reconfigure(errors="backslashreplace")  # names of the kernel need not be text
    try:
        cli.app(args=arguments)
    except ConfigError as err:
        _complain(err)
        sys.exit(cli.EXIT_CONFIG)
    except RdmaPluginError as err:
        _complain(err)
        sys.exit(cli.EXIT_FAILED)
    except OSError as err:
        # standard output is a pipe that was closed (`| head`), a full disk, or not there at all
        if not isinstance(err, BrokenPipeError):
            _complain(f"output can't be written: {err.strerror or err}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(cli.EXIT_FAILED)
    sys.exit(0)


def _complain(what: object) -> None:
    if sys.stderr is not None:
        print(what, file=sys.stderr)  # noqa: T201 - this is the command line's own output


if __name__ == "__main__":
    main()
