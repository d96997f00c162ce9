"""What a page of documentation holds: fenced blocks, commands with what they print, links.

| fence | what becomes of it |
|---|---|
| ``console`` | each ``$ command`` is run; the lines after it must be among what it prints |
| ``python`` | run |
| any language with ``file=NAME`` | written to NAME in the page's folder, for the blocks that follow; not run |
| anything else | shown only |
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")], key=lambda p: str(p)
)

_FENCE = re.compile(r"^(`{3,})(\S*)(.*)$")
_FILE = re.compile(r"\bfile=(\S+)")
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``line`` is that of its first line of text, counted from 1."""

    language: str
    info: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The name it is to be saved under."""
        found = _FILE.search(self.info)
        return found[1] if found else None


@dataclass
class Command:
    """One command of a console block, and the lines that the page shows after it."""

    text: str
    line: int
    expected: list[str] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        """Whether the page shows it failing."""
        return any(line.startswith("error:") for line in self.expected)


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    fence, language, info, start, lines = "", "", "", 0, []
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if not fence and match:
            fence, language, info, start, lines = match[1], match[2], match[3], number + 1, []
        elif fence and line.strip() == fence:
            found.append(Block(language, info, "\n".join(lines) + "\n", start))
            fence = ""
        elif fence:
            lines.append(line)
    assert not fence, f"the block that begins before line {start} does not end"
    return found


def commands(block: Block) -> list[Command]:
    r"""``$ command`` lines, continued after ``\`` at the end, each with the lines that follow it."""
    found: list[Command] = []
    continued = False
    for number, line in enumerate(block.text.splitlines(), block.line):
        if continued:
            found[-1].text += "\n" + line
        elif line.startswith("$ "):
            found.append(Command(line[2:], number))
        else:
            assert found, f"line {number}: a console block begins with '$ command'"
            found[-1].expected.append(line)
        continued = (continued or line.startswith("$ ")) and line.endswith("\\")
    return found


def missing(expected: list[str], printed: str) -> list[str]:
    """Lines of ``expected`` that are not among what was printed, in order.

    Spaces count as one; any number stands for any other; ``...`` stands for anything, and alone for any lines.
    """
    lines = [_plain(line) for line in printed.splitlines()]
    at, absent = 0, []
    for wanted in expected:
        if wanted.strip() in ("", "..."):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in _plain(wanted).split("...")))
        found = next((i for i in range(at, len(lines)) if pattern.fullmatch(lines[i])), None)
        if found is None:
            absent.append(wanted)
        else:
            at = found + 1
    return absent


def _plain(line: str) -> str:
    return _NUMBER.sub("0", " ".join(line.split()))


def links(text: str) -> list[str]:
    """Targets of links to other files of the repository, without their anchors."""
    prose = re.sub(r"^(`{3,}).*?^\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [t for t in targets if not re.match(r"[a-z]+:", t)]


def anchors(text: str) -> set[str]:
    """Names by which GitHub links to the headings of a page."""
    prose = re.sub(r"^(`{3,}).*?^\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
