"""Reading a page: blocks, commands, and what counts as printed."""

from __future__ import annotations

import pytest
from docs_pages import anchors, blocks, commands, links, missing

PAGE = """\
# A title, and more

See [there](other.md#part) and [that](https://example.org).

```console
$ haibun ls \\
    --all
ID  NAME
...
$ true
```

```yaml file=job.yaml
run: "[no](link)"
```
"""


def test_blocks_have_language_file_and_line() -> None:
    console, job = blocks(PAGE)
    assert (console.language, console.file, console.line) == ("console", None, 6)
    assert (job.language, job.file, job.text) == ("yaml", "job.yaml", 'run: "[no](link)"\n')


def test_a_block_that_does_not_end_is_an_error() -> None:
    with pytest.raises(AssertionError, match="before line 2"):
        blocks("```console\n$ true\n")


def test_commands_go_on_after_a_backslash() -> None:
    first, second = commands(blocks(PAGE)[0])
    assert first.text == "haibun ls \\\n    --all"
    assert first.expected == ["ID  NAME", "..."]
    assert (second.text, second.expected, second.line) == ("true", [], 10)


@pytest.mark.parametrize(
    ("wanted", "printed"),
    [
        (["took 1.25 s"], "took   3 s\n"),
        (["a", "...", "b"], "a\nx\ny\nb\n"),
        (["at http://127.0.0.1:7878 (log: ...)"], "at http://127.0.0.1:40001 (log: /x/y)"),
    ],
)
def test_numbers_spaces_and_ellipses_match_what_is_printed(wanted: list[str], printed: str) -> None:
    assert missing(wanted, printed) == []


@pytest.mark.parametrize(
    ("wanted", "printed"), [(["a", "b"], "b\na\n"), (["took 1 s"], "took 1 min\n"), (["a"], "ab\n")]
)
def test_lines_that_differ_or_come_in_another_order_are_missing(wanted: list[str], printed: str) -> None:
    assert missing(wanted, printed) == wanted[-1:]


def test_only_prose_has_links() -> None:
    assert links(PAGE) == ["other.md#part"]
    assert anchors(PAGE) == {"a-title-and-more"}
