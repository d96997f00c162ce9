"""SVG by hand: elements as strings, words escaped. Colours are classes, so that themes work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

SLOTS = 8  # colours of the palette in style.css: classes c0 to c7

Attribute = str | float | int


def element(tag: str, *children: str, **attributes: Attribute) -> str:
    """An element; ``children`` are markup already (use ``text`` for words).

    Attribute names: an underscore stands for a hyphen, one at the end is dropped (``class_``).
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"' for name, value in attributes.items()
    )
    return f"<{tag}{written}>{''.join(children)}</{tag}>" if children else f"<{tag}{written}/>"


def text(words: str) -> str:
    """Words as markup."""
    return escape(words, quote=False)


def label(words: str, x: float, y: float, class_: str = "tick", anchor: str = "middle") -> str:
    """A text element."""
    return element("text", text(words), x=x, y=y, class_=class_, text_anchor=anchor)


def tip(words: str) -> str:
    """What a pointer that rests on the parent element shows."""
    return element("title", text(words))


def polyline(points: Iterable[tuple[float, float]], class_: str) -> str:
    """A line through points."""
    return element(
        "polyline", points=" ".join(f"{_number(x)},{_number(y)}" for x, y in points), class_=class_
    )


def picture(width: float, height: float, summary: str, children: Sequence[str]) -> str:
    """The root: scales with the page; ``summary`` is what a screen reader says."""
    return element(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        role="img",
        aria_label=summary,
    )


def _value(value: Attribute) -> str:
    return escape(value) if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
