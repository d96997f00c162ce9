"""What the documentation says is so: its commands, scripts and links."""

from __future__ import annotations

import getpass
import re
import shlex
from pathlib import Path

import pytest
from docs_desk import Desk
from docs_pages import PAGES, ROOT, Block, anchors, blocks, commands, links, missing

import haibun.cli.main as cli

IDS = [str(page.relative_to(ROOT)) for page in PAGES]
MAKE = re.compile(r"^make ([a-z]+)$")
INSTALL = "pip install -e ."
SERVED = re.compile(r"haibun (run|submit|ls|show|logs|explain|wait|cancel|pause|resume|nodes|top)\b|Client\(")


def _runs(block: Block) -> bool:
    return block.file is not None or block.language in ("console", "python")


PARSED = (
    ROOT / "docs" / "commands.md"
)  # examples from the commands' own help: they stand for files that are not there
RUNNABLE = [page for page in PAGES if page != PARSED and any(_runs(b) for b in blocks(page.read_text()))]


@pytest.mark.live
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("page", RUNNABLE, ids=[str(p.relative_to(ROOT)) for p in RUNNABLE])
def test_what_a_page_shows_is_what_happens(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = page.read_text()
    guest = "$ haibun up" not in text and any(SERVED.search(b.text) for b in blocks(text) if _runs(b))
    desk = Desk(tmp_path, request.getfixturevalue("shared_home") if guest else None, guest)
    try:
        for block in filter(_runs, blocks(text)):
            _follow(page, block, desk)
    finally:
        desk.close()


def _follow(page: Path, block: Block, desk: Desk) -> None:
    name = page.relative_to(ROOT)
    if block.file is not None:
        target = desk.folder / block.file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text)
    elif block.language == "python":
        (desk.folder / "snippet.py").write_text(block.text)
        code, said = desk.run("python snippet.py")
        assert code == 0, f"{name}:{block.line}: the script ends with {code}:\n{said}"
    else:
        for command in commands(block):
            if MAKE.match(command.text):
                continue  # what it does has tests of its own; that it exists is tested below
            if command.text == INSTALL:
                desk.install()
                continue
            code, said = desk.run(command.text)
            where = f"{name}:{command.line}: $ {command.text}"
            assert (code != 0) == command.fails, f"{where}\nends with {code}:\n{said}"
            absent = missing(command.expected, said)
            assert not absent, f"{where}\ndoes not print\n{absent}\nbut\n{said}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_make_knows_what_a_page_makes(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for block in blocks(page.read_text()):
        if block.language == "console":
            made = [m[1] for c in commands(block) if (m := MAKE.match(c.text))]
            assert set(made) <= targets


def test_examples_of_the_commands_own_help_are_understood() -> None:
    for block in blocks(PARSED.read_text()):
        for shown in commands(block) if block.language == "console" else ():
            _, name, *words = shlex.split(shown.text)
            cli.command(name).make_context(name, words)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.read_text()), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_a_page_names_no_place_of_one_machine(page: Path) -> None:
    text = page.read_text()
    for place in {str(ROOT), str(Path.home()), f"/home/{getpass.getuser()}"} - {"/"}:
        assert place not in text


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"(?:`|^\$ )haibun ([a-z]+)\b", text, flags=re.MULTILINE))
    assert named <= set(cli.COMMANDS), f"no such command: {named - set(cli.COMMANDS)}"


def test_every_page_is_on_the_map() -> None:
    for folder in (ROOT / "docs", ROOT / "docs" / "internals"):
        listed = {
            (folder / link.partition("#")[0]).resolve() for link in links((folder / "index.md").read_text())
        }
        pages = {page for page in folder.glob("*.md") if page.name != "index.md"}
        assert pages <= listed, f"not on the map: {sorted(p.name for p in pages - listed)}"
