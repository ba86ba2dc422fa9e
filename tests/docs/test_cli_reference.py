"""The reference of the command line has every command and option, each with help."""

import re

import click

from tests.docs.pages import ROOT
from tools.cli_reference import PAGE, Entry, code, entries, main, page, row
from zae_limiter.cli import main as zae_limiter

TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = list(entries())[1:]


def undocumented(commands: list[Entry], text: str) -> list[str]:
    """Return the commands without a section, and the options that neither it nor the common ones have."""
    sections = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##+ |\Z)", text, re.MULTILINE | re.DOTALL))
    common = sections.get("Common options", "")
    found = [one.title for one in commands if one.title not in sections]
    for one in commands:
        section = sections.get(one.title, "")
        for option in one.options():
            named = [f"{one.title} {name}" for name in (*option.opts, *option.secondary_opts)]
            cell = f"| {code(row(option, one.context).written)} |"
            if cell not in section and not (cell in common and f"`{max(option.opts, key=len)}`" in section):
                found += named
    return found


def without_help(commands: list[Entry]) -> list[str]:
    """Return the commands and options that have no help."""
    silent = [one.title for one in commands if not (one.command.help or "").strip()]
    return silent + [
        f"{one.title} {option.opts[0]}"
        for one in commands
        for option in one.options()
        if not getattr(option, "help", "")
    ]


def test_cli_page_is_what_the_generator_writes():
    """After a change of a command, run: make reference."""
    assert page() == TEXT


def test_every_command_and_option_is_on_the_page():
    """Those of nested groups too."""
    assert len(COMMANDS) > 15
    assert [] == undocumented(COMMANDS, TEXT)


def test_every_command_and_option_has_help():
    """An empty cell is not enough."""
    assert [] == without_help(COMMANDS)


def test_every_command_has_an_example():
    """A reader may copy it; another test checks that it can be given."""
    leaves = [one for one in COMMANDS if not isinstance(one.command, click.Group)]

    assert [] == [one.title for one in leaves if "Example" not in (one.command.epilog or "")]


BELOW = (
    "\b\nExample:\n  fleet sail --far\n\n\b\nExit codes:\n  0   there\n  75  no wind; see --far\n\n\b\nJSON:\n  {at}"
)


@click.group()
def fleet() -> None:
    """Move boats."""


@fleet.command(epilog=BELOW)
@click.argument("boat")
@click.option("--far", is_flag=True, help="Beyond the horizon, as SAIL_FAR says.")
@click.option("--crew", type=click.Choice(["few", "many"]), default="few", show_default=True, help="How many.")
@click.option("--secret", hidden=True)
def sail(boat: str, far: bool, crew: str, secret: str) -> None:
    """Sail a boat."""


@fleet.command(hidden=True)
def sink() -> None:
    """Sink it."""


FLEET = list(entries(fleet, ("fleet",)))


def test_new_command_or_option_is_found():
    """The check can fail: a command that is not on the page, and a new option of one that is."""
    section = "## sail\n\n| option | what it does |\n| --- | --- |\n| `--far` | ... |\n"

    assert ["sail", "sail --far", "sail --crew"] == undocumented(FLEET[1:], TEXT)
    assert ["sail --crew"] == undocumented(FLEET[1:], section)


def test_command_without_help_is_found():
    """The check can fail: commands and options need help."""

    @click.command()
    @click.option("--quick")
    def run(quick: str) -> None: ...

    assert ["run", "run --quick"] == without_help(list(entries(click.Group("all", {"run": run}), ("all",)))[1:])


def test_section_of_a_command_has_usage_options_examples_and_exit_codes():
    """Options have defaults and choices; hidden ones are left out."""
    written = page(fleet, "fleet")
    wanted = """## sail

Sail a boat.

```text
fleet sail [OPTIONS] BOAT
```

| option | what it does |
| --- | --- |
| `--far` | Beyond the horizon, as `SAIL_FAR` says. |
| <code>--crew [few&#124;many]</code> | How many. *(default: few)* |

```bash
fleet sail --far
```

| exit code | what it means |
| --- | --- |
| 0 | there |
| 75 | no wind; see `--far` |

JSON: `{at}`
"""

    assert wanted in written
    assert "sink" not in written
    assert "secret" not in written


def test_stale_page_fails_the_check(monkeypatch, tmp_path, capsys):
    """The output has the difference, and what to run."""
    stale = tmp_path / "cli.md"
    stale.write_text(TEXT.replace("## acquire", "## take"))
    monkeypatch.setattr("tools.cli_reference.PAGE", stale)

    assert main(["--check"]) == 1
    assert "+## acquire" in (message := capsys.readouterr().err)
    assert "make reference" in message
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert stale.read_text() == page(zae_limiter)


def test_cli_page_is_in_the_navigation():
    """mkdocs.yml lists it."""
    assert ROOT / "docs" / "cli.md" == PAGE
