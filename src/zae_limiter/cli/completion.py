"""Define ``zae-limiter completion``: print the completion script of a shell."""

import click
from click.shell_completion import get_completion_class

from zae_limiter.cli._help import examples, help_of, section

PROGRAM = "zae-limiter"
VARIABLE = "_ZAE_LIMITER_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

EXAMPLES = examples(
    'eval "$(zae-limiter completion bash)"',
    "zae-limiter completion fish | source",
)
INSTALLING = section(
    "To enable it in every shell",
    """bash  echo 'eval "$(zae-limiter completion bash)"' >> ~/.bashrc""",
    """zsh   echo 'eval "$(zae-limiter completion zsh)"' >> ~/.zshrc    (below compinit)""",
    "fish  zae-limiter completion fish > ~/.config/fish/completions/zae-limiter.fish",
)


@click.command(short_help="Print a shell completion script.", epilog=help_of(EXAMPLES, INSTALLING))
@click.argument("shell", type=click.Choice(SHELLS), metavar="|".join(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script with which a shell completes commands, options and values when you press Tab."""
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    click.echo(shell_class(context.find_root().command, {}, PROGRAM, VARIABLE).source())
