"""`holdfast completion`: prints the completion script for a shell."""

import click

from ..session import settings

# The variable by which the script requests completions.
COMPLETE = "_HOLDFAST_COMPLETE"

HOWTO = {
    "bash": 'eval "$(holdfast completion bash)"       in ~/.bashrc',
    "zsh": 'eval "$(holdfast completion zsh)"        in ~/.zshrc',
    "fish": "holdfast completion fish | source         in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(HOWTO.values()))
@click.argument("shell", metavar="SHELL", type=click.Choice(tuple(HOWTO)))
@settings()
@click.pass_context
def completion(ctx: click.Context, /, *, shell: str) -> None:
    """Print the completion script for a shell.

    It completes commands, options, tasks and schedules.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "holdfast", COMPLETE)
    # Not `source`: that would start the shell to get its version, but the script is the same for all
    # versions.
    click.echo(script.source_template % script.source_vars())
