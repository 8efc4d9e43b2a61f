"""Commands that say which one was probably meant."""

from __future__ import annotations

import click
from typer.core import TyperGroup

from potluck.core.plug import unknown


class Commands(TyperGroup):
    """Commands by name; for a name that does not exist, the error suggests one, or lists them all."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            ctx.fail(unknown("command", args[0], self.commands))
        return super().resolve_command(ctx, args)
