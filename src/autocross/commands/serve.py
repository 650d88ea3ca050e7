"""The command that serves models over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from autocross.commands.common import app
from autocross.errors import FileError, MissingLibraryError, OptionError

TOKEN = "AUTOCROSS_TOKEN"


@app.command
def serve(
    model: Annotated[str, Parameter(help="A saved model: PATH, NAME=PATH or NAME:VERSION=PATH. The first one is the default.")],
    *models: Annotated[str, Parameter(help="More models, or more versions of one.")],
    host: Annotated[str, Parameter(help="Address to listen on. Others than this machine reach only what you open.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on. 0 takes a free one, which the log tells.")] = 8080,
    workers: Annotated[int, Parameter(help="Processes that share the port.")] = 1,
    threads: Annotated[int, Parameter(help="Threads of each process that score requests of many rows.")] = 2,
    token_file: Annotated[
        Path | None, Parameter(help=f"File with a token that requests must have. The environment variable {TOKEN} may hold it too.")
    ] = None,
    strict: Annotated[bool, Parameter(help="Refuse rows with unknown or absent columns.")] = False,
    max_body: Annotated[int, Parameter(help="Bytes of a request, at most.")] = 8 << 20,
    max_rows: Annotated[int, Parameter(help="Rows of a request, at most.")] = 10_000,
    max_depth: Annotated[int, Parameter(help="How deeply JSON may be nested.")] = 16,
    max_connections: Annotated[int, Parameter(help="Connections of each process at a time, at most.")] = 1_000,
    timeout: Annotated[float, Parameter(help="Seconds that a request may take, from its first byte to its answer.")] = 30.0,
    keep_alive: Annotated[float, Parameter(help="Seconds that a connection stays open without a request.")] = 75.0,
    grace: Annotated[float, Parameter(help="Seconds that requests may still take when the server is told to stop.")] = 30.0,
    watch: Annotated[float, Parameter(help="Seconds between looks at the model files. 0: load them anew on SIGHUP only.")] = 1.0,
    quiet: Annotated[bool, Parameter(help="Log problems only, and not every request.")] = False,
) -> int:
    """Serve models over HTTP: scores, reasons, the Open Inference Protocol and MLflow's. Needs `pip install autocross[serve]`."""
    token = token_of(token_file)
    try:
        from autocross.server.limits import Limits
        from autocross.server.models import source_of
        from autocross.server.run import Settings
        from autocross.server.run import serve as run
    except ImportError as error:
        raise MissingLibraryError(f"serve needs the library {error.name}. Install it with: pip install autocross[serve]") from None
    return run(
        Settings(
            sources=tuple(source_of(text) for text in (model, *models)),
            host=host,
            port=port,
            limits=Limits(max_body, max_rows, max_depth, timeout, max_connections),
            token=token,
            strict=strict,
            n_threads=threads,
            n_workers=workers,
            watch=watch,
            keep_alive=keep_alive,
            grace=grace,
            quiet=quiet,
        )
    )


def token_of(path: Path | None) -> str | None:
    """The token, from the file or from the environment, if there is one."""
    if path is None:
        if TOKEN not in os.environ:
            return None
        where, token = f"The environment variable {TOKEN}", os.environ[TOKEN]
    else:
        where = f"--token-file {str(path)!r}"
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise FileError(f"Cannot read {where}: {getattr(error, 'strerror', None) or 'it is no text'}.") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise OptionError(f"{where} holds no token. Give a text of letters, digits and signs, without blanks.")
    return token
