"""The command line. Commands are imported when they are called, so that each starts as fast as it can."""

from __future__ import annotations

import functools
import importlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from haibun.cli.errors import Failure, report

# name -> (module, function, group in --help); in the order in which --help lists them
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Jobs"),
    "submit": ("run", "submit", "Jobs"),
    "ls": ("jobs", "ls", "Jobs"),
    "show": ("jobs", "show", "Jobs"),
    "logs": ("watch", "logs", "Jobs"),
    "explain": ("jobs", "explain", "Jobs"),
    "wait": ("watch", "wait", "Jobs"),
    "cancel": ("verbs", "cancel", "Jobs"),
    "pause": ("verbs", "pause", "Jobs"),
    "resume": ("verbs", "resume", "Jobs"),
    "priority": ("verbs", "priority", "Jobs"),
    "shell": ("shell", "shell", "Jobs"),
    "top": ("top", "top", "Cluster"),
    "nodes": ("nodes", "nodes", "Cluster"),
    "drain": ("nodes", "drain", "Cluster"),
    "undrain": ("nodes", "undrain", "Cluster"),
    "events": ("watch", "events", "Cluster"),
    "up": ("server", "up", "Server"),
    "down": ("server", "down", "Server"),
    "simulate": ("simulate", "simulate", "Twin"),
    "trace": ("trace", "trace", "Twin"),
    "generate": ("trace", "generate", "Twin"),
    "policies": ("about", "policies", "Twin"),
    "demo": ("about", "demo", "About"),
    "version": ("about", "version", "About"),
}
_HELP = {"help_option_names": ["-h", "--help"]}
_SETTINGS: dict[str, dict[str, bool]] = {
    # Words after the first belong to the user's command, even if they begin with a dash.
    "run": {"allow_interspersed_args": False},
    "shell": {"allow_interspersed_args": False},
    # -5 is a number.
    "priority": {"ignore_unknown_options": True},
}


class Lazy(TyperGroup):
    """Imports a command's module only when that command is called, or described."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or None."""
        return command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments begin with; an unknown one gets a suggestion."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean {close[0]!r}?" if close else "'haibun --help' lists all commands"
            raise UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


# Typer has moved these classes between versions; they stay the bases of its public one.
UsageError: Any = typer.BadParameter.__mro__[1]
ClickException: Any = UsageError.__mro__[1]


def command(name: str) -> Any:
    """The click command of that name, made from its function."""
    module, function, panel = COMMANDS[name]
    made = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    settings = {**_HELP, **_SETTINGS.get(name, {})}
    body = getattr(importlib.import_module(f"haibun.cli.{module}"), function)
    made.command(name, rich_help_panel=panel, context_settings=settings)(_finite(body))
    return typer.main.get_command(made)


def _finite(body: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with nan and inf refused: neither means anything to any option."""

    @functools.wraps(body)
    def checked(**given: Any) -> Any:
        for name, value in given.items():
            if isinstance(value, float) and not math.isfinite(value):
                option = f"'--{name.replace('_', '-')}'"
                raise typer.BadParameter(f"'{value}' is not a finite number", param_hint=option)
        return body(**given)

    return checked


app = typer.Typer(
    cls=Lazy,
    context_settings=_HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        import haibun

        print(f"haibun {haibun.__version__}")
        raise typer.Exit


@app.callback()
def _haibun(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run deep-learning jobs on a cluster, and replay traces of them in its twin.

    Start a server with `haibun up`, then try `haibun run -- python train.py`.
    """


def invoke(args: Sequence[str]) -> int:
    """Run one command line; returns its exit code. Errors go to stderr, as JSON where ``--json`` is given."""
    words = list(args)
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        _readable(words)
        code = typer.main.get_command(app)(words, prog_name="haibun", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 1
    except BaseException as e:
        if type(e).__name__ == "NoArgsIsHelpError":
            e.show()  # type: ignore[attr-defined]
            return 2
        return report(e, as_json, usage=isinstance(e, ClickException))


def _readable(words: Sequence[str]) -> None:
    """Words must be UTF-8: jobs are stored and shown as text."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            shown = ascii(os.fsencode(word))[1:]
            message = f"the word {shown} on the command line is not UTF-8 text"
            raise Failure(message, "write it in UTF-8, or rename what it names", code=2) from None


def main() -> None:
    """The entry point ``haibun``."""
    sys.exit(invoke(sys.argv[1:]))


if __name__ == "__main__":
    main()
