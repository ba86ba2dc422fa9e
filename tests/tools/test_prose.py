"""The prose check: what each of its rules reports, and what it leaves alone."""

from pathlib import Path

import pytest

from tools import prose
from tools.prose import Finding, check_page, check_source

LONG = " ".join(["go"] * 26) + "."
FITS = " ".join(["go"] * 25) + "."
WIDE = "x" * 60 + " " + "y" * 60


def lines_of(findings: list[Finding]) -> list[int]:
    return [finding.line for finding in findings]


class TestUnclearWords:
    """Words that a reader stumbles over are reported wherever people read them."""

    @pytest.mark.parametrize(
        "text",
        [
            "It is aloft.",
            "It starts anew.",
            "Whoever asks first gets it.",
            "Nobody waits.",
            "The call is under way.",
            "Wait for so long.",
            "The store is away.",
            "The URL is none.",
            "It took 730 in truth.",
            "The caller is told.",
        ],
    )
    def test_every_word_of_the_list_is_reported(self, text: str):
        """In any case, and in any position of a sentence."""
        assert [1] == lines_of(check_page(text))

    @pytest.mark.parametrize(
        "text",
        [
            "The store is unavailable.",
            "The value is None if it is not set.",
            "Wait as long as it takes, and do not look away.",
            "Read `nobody` and `x is none` as names.",
            "It creates the table if there is none.",
            "See [the page](guide/nobody.md).",
            "The highway under Wayne Street.",
        ],
    )
    def test_similar_text_is_not_reported(self, text: str):
        """Python's None, inline code, targets of links and parts of other words are fine."""
        assert [] == check_page(text)

    def test_words_split_by_a_line_break_are_reported_on_the_first_line(self):
        """A phrase is one phrase where the paragraph wraps."""
        assert [Finding(2, "unclear: 'is away'")] == check_page("First.\nThe store is\naway now.\n")

    @pytest.mark.parametrize(
        "page", ["# If the store is away\n", "| a | nobody |\n", "```python\nx = 1  # nobody\n```\n"]
    )
    def test_headings_tables_and_code_blocks_are_searched(self, page: str):
        """They have no maximum length, but they are read."""
        assert [Finding] == [type(found) for found in check_page(page)]

    def test_front_matter_is_not_searched(self):
        """It is for the site generator."""
        assert [] == check_page("---\ndescription: nobody\n---\n\nFine.\n")


class TestLongSentences:
    """A sentence has at most 25 words."""

    def test_sentence_of_26_words_is_reported_where_it_begins(self):
        """Lines are counted from 1, and the sentences before it are not its words."""
        assert [Finding(2, "sentence of 26 words: go go go go go go ...")] == check_page(f"{FITS}\n{LONG}\n")

    @pytest.mark.parametrize(
        "page",
        [
            f"{FITS} {FITS}",
            f"- {FITS[:-1]}\n- {FITS[:-1]}\n",
            f"> {FITS}\n> {FITS}\n",
            f"{FITS[:-1]}\n\n{FITS}",
            f"{FITS[:-1]}\n\n```text\n{LONG}\n```\n",
            f"| {LONG} |\n",
            f"# {LONG}\n",
            f"---\ntitle: {LONG}\n---\n",
            f"({FITS}) {FITS}",
            f"**{FITS}** {FITS}",
            f"{' '.join(['go'] * 24)} `code of five more words`.",
            f"{' '.join(['go'] * 24)} [word](https://example.com/a(b)c).",
            f"<p>\n{FITS}\n",
        ],
    )
    def test_shorter_sentences_and_exempt_text_are_not_reported(self, page: str):
        """Items, quotes, blocks and ends in parentheses part sentences; inline code is one word."""
        assert [] == [found for found in check_page(page) if "sentence" in found.what]

    def test_prose_after_a_code_block_is_checked_again(self):
        """A fence of four characters is not closed by one of three."""
        page = f"````text\n```\n{LONG}\n````\n\n{LONG}\n"

        assert [6] == [found.line for found in check_page(page) if "sentence" in found.what]

    def test_abbreviation_does_not_end_a_sentence(self):
        """Twenty words before it and six after it are one sentence."""
        assert [1] == lines_of(check_page(f"{' '.join(['go'] * 20)} e.g. {' '.join(['go'] * 6)}."))


class TestLongLines:
    """A line of prose has at most 100 columns."""

    @pytest.mark.parametrize("page", [f"{WIDE}\n", f"- {WIDE}\n", f"  {WIDE}\n"])
    def test_wide_line_of_prose_is_reported(self, page: str):
        """In a paragraph and in an item."""
        assert [1] == lines_of(check_page(page))

    @pytest.mark.parametrize(
        "page",
        [
            f"| {WIDE} |\n",
            f"# {WIDE}\n",
            f"```text\n{WIDE}\n```\n",
            f"[{'x' * 60}](https://example.com/{'y' * 60}) and more\n",
            f"see https://example.com/{'y' * 100}\n",
            f"[name]: https://example.com/{'y' * 100}\n",
            f"- `{WIDE}`\n",
            f"<img alt='{WIDE}'>\n",
        ],
    )
    def test_what_cannot_be_wrapped_is_not_reported(self, page: str):
        """Tables, headings, code, tags, and the targets of links."""
        assert [] == check_page(page)


class TestSources:
    """Docstrings, comments and messages are read too."""

    @pytest.mark.parametrize(
        "source",
        [
            '"""Whoever asks."""\n',
            "x = 1  # nobody asks\n",
            "raise ValueError('the store is away')\n",
            "raise ValueError(f'the store {name} is away')\n",
            "x = 1\n'''Nobody asks.'''\n",
        ],
    )
    def test_unclear_word_is_reported(self, source: str):
        """In a docstring, also that of an attribute, in a comment, and in a string that is a message."""
        assert ["unclear"] == [found.what.split(":")[0] for found in check_source(source)]

    @pytest.mark.parametrize(
        "source",
        [
            "if x is None: pass\n",
            "is_away = nobody = 1\n",
            "acquire('nobody')\n",
            "FLAGS = {'so long': 1}\n",
            "x = 1  # True if it is None\n",
        ],
    )
    def test_code_and_names_are_not_reported(self, source: str):
        """A string of one or two words is data, not prose."""
        assert [] == check_source(source)

    def test_long_sentence_in_a_docstring_is_reported_on_its_line(self):
        """The first line of a docstring is that of its quotes."""
        assert [3] == lines_of(check_source(f'def f():\n    """Do it.\n    {LONG}\n    """\n'))

    def test_long_sentence_in_a_message_is_reported(self):
        """A message is a literal of one line; those of several lines are mostly SQL and style sheets."""
        assert [2] == lines_of(check_source(f"x = 1\nraise ValueError('{LONG}')\n"))

    def test_long_sentence_in_consecutive_comments_is_reported_on_the_first(self):
        """They are one text."""
        assert [2] == lines_of(check_source(f"x = 1\n# {LONG[:30]}\n# {LONG[30:]}\n"))

    @pytest.mark.parametrize(
        "source",
        [
            f"x = 1  # {FITS[:-1]}\ny = 2\n# {FITS[:-1]}\n",
            f'"""Do it.\n\n    python tool.py {LONG}\n\nMore.\n"""\n',
            f'"""Do it.\n\nArgs:\n    a: {FITS[:-4]}\n    b: {FITS[:-4]}\n"""\n',
            f'"""Do it.\n\n- {FITS[:-1]}\n- {FITS[:-1]}\n"""\n',
            f"QUERY = '''\n{LONG}\n'''\n",
            f"x = 1  # noqa: E501 {LONG}\n",
            f"# | {LONG} |\n",
        ],
    )
    def test_separate_texts_and_exempt_text_are_not_reported(self, source: str):
        """Entries, items and comments that are not next to each other are separate; indented blocks are code."""
        assert [] == check_source(source)

    def test_entry_of_a_section_is_checked_with_its_continuation(self):
        """A section is indented, but it is prose."""
        source = f'"""Do it.\n\nArgs:\n    a: {LONG[:30]}\n        {LONG[30:]}\n"""\n'

        assert [4] == lines_of(check_source(source))


class TestFiles:
    """The check finds the files of the repository, and says what is wrong with them."""

    def test_generated_and_installed_files_are_skipped(self, tmp_path: Path):
        """The sync tree is generated from the async one."""
        for name in (
            "src/_async/a.py",
            "src/_sync/a.py",
            "bench/.venv/x.py",
            "docs/page.md",
            "tests/tools/test_prose.py",
        ):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

        found = prose.files([*prose.PAGES, *prose.SOURCES], tmp_path)

        assert ["docs/page.md", "src/_async/a.py"] == [path.relative_to(tmp_path).as_posix() for path in found]

    def test_findings_are_printed_with_file_and_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        """The exit code is 1 if there are any."""
        page = tmp_path / "page.md"
        page.write_text("# Page\n\nNobody reads it.\n")

        assert 1 == prose.main([str(page)])
        assert f"{page}:3: unclear: 'Nobody'\n" == capsys.readouterr().out

    @pytest.mark.parametrize("name", ["limiter.yaml", "setup.sh", "Makefile"])
    def test_unclear_word_in_settings_is_reported(self, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        """Comments and descriptions of templates, scripts and targets are read too, and code is not."""
        texts = {
            "limiter.yaml": "#   nobody\nKey:\n  Description: Nobody reads it\n  Value: nobody\n",
            "setup.sh": "#!/bin/nobody\nsudo -u nobody ls\n# Nobody reads it.\n# --- nobody ---\n",
            "Makefile": "a: b\n\t@nobody\nclean: ## tell nobody\n",
        }
        path = tmp_path / name
        path.write_text(texts[name])

        assert 1 == prose.main([str(path)])
        assert [f"{path}:3"] == [line.rpartition(": unclear")[0] for line in capsys.readouterr().out.splitlines()]

    def test_long_sentence_of_a_comment_in_settings_is_reported_where_it_begins(self):
        """Lines that follow each other are one text."""
        assert [2] == lines_of(prose.check_settings(f"a: 1\n# {LONG[:30]}\n# {LONG[30:]}\nb: 2\n"))

    @pytest.mark.parametrize("name", ["tests/tools/test_prose.py", "src/zae_limiter/_sync/backoff.py"])
    def test_named_file_that_is_skipped_passes(self, name: str, capsys: pytest.CaptureFixture[str]):
        """A commit hook names every changed file. If all are skipped, nothing is checked."""
        assert 0 == prose.main([str(prose.ROOT / name)])
        assert "" == capsys.readouterr().out

    def test_clean_file_passes(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        """Nothing is printed, and the exit code is 0."""
        page = tmp_path / "page.md"
        page.write_text("# Page\n\nYou read it.\n")

        assert 0 == prose.main([str(page)])
        assert "" == capsys.readouterr().out
