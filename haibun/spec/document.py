"""YAML to plain values, with the place of each: so that an error can name line and column.

Scalars follow YAML 1.2: ``yes``, ``off``, ``010`` and ``1:30`` are text (YAML 1.1 makes them true, false, 8
and 90), and ``1e6`` is a number. Duplicate keys are errors, tags such as ``!!python/object`` too; anchors
and merge keys (``<<``) work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from haibun.spec.problems import SpecError, SpecProblem, did_you_mean

Path_ = tuple[str | int, ...]
Mark = tuple[int, int]  # line and column, from 1

MAX_BYTES = 4 << 20  # a spec is written by hand; more is the wrong file
MAX_NODES = 200_000  # values after aliases are followed: bounds what a few nested aliases can blow up to
MERGE = "<<"
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + "str", _TAG + "seq", _TAG + "map"}  # what BaseLoader gives to all that bears no tag
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(slots=True)
class Document:
    """One YAML document: its value, and where keys and values stand, by path."""

    file: str
    value: Any
    keys: dict[Path_, Mark] = field(default_factory=dict)
    values: dict[Path_, Mark] = field(default_factory=dict)

    def problem(self, path: Path_, message: str, hint: str = "", *, at_key: bool = False) -> SpecProblem:
        """A problem at a path; where the path leads nowhere, at the closest thing above it."""
        place = path
        while place not in self.values and place:
            place, at_key = place[:-1], True
        marks = self.keys if at_key and place in self.keys else self.values
        line, column = marks.get(place, (1, 1))
        return SpecProblem(self.file, line, column, dotted(path), message, hint)


def dotted(path: Path_) -> str:
    """``nodes[0].devices``"""
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
    return text.encode(errors="backslashreplace").decode()


def read_text(path: Path) -> str:
    """What a spec file holds.

    Raises:
        SpecError: it is missing, no file, too large or not UTF-8.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        near = (
            did_you_mean(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else ""
        )
        hint = near if near.startswith("did") else "is the path right?"
        raise SpecError([SpecProblem(str(path), 0, 0, "", "there is no such file", hint)]) from None
    except OSError as e:
        raise SpecError([SpecProblem(str(path), 0, 0, "", f"cannot be read: {e.strerror or e}")]) from None
    if len(raw) > MAX_BYTES:
        message = f"has {len(raw):,} bytes; a spec has at most {MAX_BYTES:,}"
        raise SpecError([SpecProblem(str(path), 0, 0, "", message, "is it the right file?")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = raw[: e.start].count(b"\n") + 1
        raise SpecError(
            [SpecProblem(str(path), line, 1, "", "is not UTF-8 text", "is it a YAML file?")]
        ) from None


def load_documents(text: str, file: str = "<text>") -> list[Document]:
    """All documents of a YAML text that hold something.

    Raises:
        SpecError: the syntax is broken, a key is given twice, or there is no document.
    """
    documents: list[Document] = []
    problems: list[SpecProblem] = []
    try:
        for node in yaml.compose_all(text, Loader=yaml.BaseLoader):
            if node is not None and not _is_empty(node):
                builder = _Builder(file)
                builder.document.value = builder.build(node, ())
                documents.append(builder.document)
                problems += builder.problems
    except yaml.MarkedYAMLError as e:
        problems.append(_syntax(file, e))
    except yaml.reader.ReaderError as e:
        line = text[: e.position].count("\n") + 1
        problems.append(
            SpecProblem(file, line, 1, "", f"holds a character that YAML forbids: {chr(e.character)!r}")
        )
    except (RecursionError, _TooLargeError):
        problems.append(
            SpecProblem(file, 1, 1, "", "is nested too deeply, or its aliases expand to too much")
        )
    if not documents and not problems:
        problems.append(SpecProblem(file, 0, 0, "", "is empty", "see docs/ for examples"))
    if problems:
        raise SpecError(problems)
    return documents


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == "" and node.style is None


def _syntax(file: str, error: yaml.MarkedYAMLError) -> SpecProblem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    problem = (error.problem or error.context or "cannot be parsed").replace(
        "could not found", "could not find"
    )
    hint = ""
    if "'\\t'" in problem:
        hint = "YAML is indented with spaces, not tabs"
    elif "mapping values are not allowed" in problem:
        hint = "quote a value that holds ': ', and check the indentation"
    elif error.context_mark and mark and error.context_mark.line != mark.line:
        hint = f"it belongs to what begins on line {error.context_mark.line + 1}"
    return SpecProblem(file, line, column, "", f"is not valid YAML: {problem}", hint)


class _TooLargeError(Exception):
    """More values than MAX_NODES."""


class _Builder:
    """Walks a node graph; keeps the marks and collects problems."""

    def __init__(self, file: str) -> None:
        self.document = Document(file, None)
        self.problems: list[SpecProblem] = []
        self.open: set[int] = set()
        self.count = 0

    def build(self, node: yaml.Node, path: Path_) -> Any:
        self.count += 1
        if self.count > MAX_NODES or id(node) in self.open:
            raise _TooLargeError
        self.document.values[path] = _mark(node)
        if node.tag not in _PLAIN_TAGS:
            self.add(path, f"bears the tag {node.tag.replace(_TAG, '!!')!r}", "write it without a tag")
            return None
        if isinstance(node, yaml.ScalarNode):
            return plain(node.value) if node.style is None else node.value
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.build(child, (*path, i)) for i, child in enumerate(node.value)]
            return self.mapping(node, path)
        finally:
            self.open.discard(id(node))

    def mapping(self, node: yaml.Node, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        seen: dict[str, Mark] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.document.values[(*path, "?")] = _mark(key_node)
                self.add((*path, "?"), "is a key that is no plain text", "use a word as the key")
                continue
            key = str(key_node.value)
            if key == MERGE and key_node.style is None:
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                continue
            here = (*path, key)
            if key in seen:
                self.document.keys[here] = _mark(key_node)
                self.document.values.setdefault(here, _mark(value_node))
                self.add(
                    here, f"is given twice (first on line {seen[key][0]})", "keep one of the two", at_key=True
                )
                continue
            seen[key] = self.document.keys[here] = _mark(key_node)
            result[key] = self.build(value_node, here)
        for source in merged:
            self.merge(source, path, result)
        return result

    def merge(self, node: yaml.Node, path: Path_, into: dict[str, Any]) -> None:
        """What ``<<`` brings: keys that are not given already."""
        if not isinstance(node, yaml.MappingNode):
            self.add(path, "'<<' needs an alias of a mapping", "as in '<<: *defaults'")
            return
        before = dict(self.document.values), dict(self.document.keys)
        for key, value in self.mapping(node, path).items():
            into.setdefault(key, value)
        self.document.values.update(before[0])
        self.document.keys.update(before[1])

    def add(self, path: Path_, message: str, hint: str, *, at_key: bool = False) -> None:
        self.problems.append(self.document.problem(path, message, hint, at_key=at_key))


def _mark(node: yaml.Node) -> Mark:
    return node.start_mark.line + 1, node.start_mark.column + 1


def plain(text: str) -> Any:
    """The value of an unquoted scalar under YAML 1.2's core schema; octal and hexadecimal stay text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) and len(text) < 400:
        return int(text)
    if _FLOAT.fullmatch(text) and not re.match(r"[-+]?0\d", text):
        return float(text)
    special = _SPECIAL.fullmatch(text)
    if special:
        return float("nan") if special[3] else float(special[1] + "inf")
    return text
