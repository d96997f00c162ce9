"""``docs/commands.md``, made from what ``--help`` says: ``python -m haibun.cli.document > docs/commands.md``."""

from __future__ import annotations

import importlib
import inspect
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

from typer.models import ArgumentInfo, OptionInfo

from haibun.cli.main import COMMANDS

_HEAD = """# Commands

Made from `haibun COMMAND --help` by `python -m haibun.cli.document > docs/commands.md`; a test keeps it true.

- `--json` prints one JSON value on stdout and nothing else (while following: one a line). Errors are then JSON on
  stderr: `{"error": {"message", "hint", "code", "fields"}}`.
- Exit codes: 0; 1 for errors; 2 for wrong usage; 130 after Ctrl-C; 70 for a fault of Haibun's (details in
  `errors.log` of the home folder; `HAIBUN_DEBUG=1` shows them). `run` and `shell` exit as the job or shell did.
- Jobs may be named by id, or by a name that one job alone bears.
- The server is found by `HAIBUN_URL` and `HAIBUN_TOKEN`, else in the home folder: `HAIBUN_HOME`, else `~/.haibun`.
- Colours and tables that fit the window are for terminals; `NO_COLOR` turns colours off.
"""


def document() -> str:
    """The whole page."""
    parts = [_HEAD]
    panel = ""
    for name, (module, function, group) in COMMANDS.items():
        if group != panel:
            panel = group
            parts.append(f"## {group}\n")
        parts.append(_section(name, getattr(importlib.import_module(f"haibun.cli.{module}"), function)))
    return "\n".join(parts)


def _section(name: str, body: Any) -> str:
    params = list(_params(body))
    arguments = [(param, info) for param, _, info in params if isinstance(info, ArgumentInfo)]
    options = [(param, kind, info) for param, kind, info in params if isinstance(info, OptionInfo)]
    words = [info.metavar or param.name.upper() for param, info in arguments]
    usage = " ".join(["haibun", name, *(["[OPTIONS]"] if options else []), *words])
    rows = [f"| `{word}` | {info.help} |" for word, (_, info) in zip(words, arguments, strict=True)]
    rows += [f"| {_names(param, kind, info)} | {_help(param, info)} |" for param, kind, info in options]
    table = "\n".join(["| | |", "|---|---|", *rows]) if rows else ""
    text = re.sub(r"\nExample: `(.*)`", r"\n```console\n$ \1\n```", inspect.cleandoc(body.__doc__ or ""))
    return f"### {name}\n\n`{usage}`\n\n{text}\n\n{table}\n"


def _params(body: Any) -> Iterator[tuple[inspect.Parameter, Any, ArgumentInfo | OptionInfo]]:
    """Parameters of a command: as written, of which type, and what Typer is told of it."""
    hints = typing.get_type_hints(body, include_extras=True)
    for param in inspect.signature(body).parameters.values():
        kind, info = typing.get_args(hints[param.name])
        yield param, kind, info


def _names(param: inspect.Parameter, kind: Any, info: OptionInfo) -> str:
    # Inside Annotated, Typer takes the first name for the default.
    given = [name for name in (info.default, *(info.param_decls or ())) if str(name).startswith("-")]
    names = given or [f"--{param.name.replace('_', '-')}"]
    if kind is bool and not given:
        names.append(f"--no-{param.name}")
    shown = ", ".join(f"`{name}`" for name in names)
    return shown if kind is bool else f"{shown} {info.metavar or _word(kind)}"


def _word(kind: Any) -> str:
    """What kind of value is wanted, in a word."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    if typing.get_origin(kind) is list:
        kind = typing.get_args(kind)[0]
    return {int: "N", float: "NUMBER", str: "TEXT"}.get(kind, "PATH")


def _help(param: inspect.Parameter, info: OptionInfo) -> str:
    text = (info.help or "").replace("|", "\\|")
    if param.default is param.empty:
        return f"{text} Required."
    return text if param.default in (None, False, True) else f"{text} Default: `{param.default}`."


if __name__ == "__main__":
    print(document(), end="")
