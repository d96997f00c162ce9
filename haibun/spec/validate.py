"""pydantic's errors, in words for people and with places in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from haibun.spec.document import Document, Path_
from haibun.spec.problems import SpecError, SpecProblem, did_you_mean

M = TypeVar("M", bound="Spec")
_SURROGATE = re.compile("[\ud800-\udfff]")

_NAMES = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}


_ELSEWHERE = {  # what other systems call it
    **dict.fromkeys(("command", "cmd", "script", "args", "entrypoint"), "run"),
    **dict.fromkeys(("time", "timeout", "time_limit", "max_runtime"), "walltime"),
    **dict.fromkeys(("nodes", "nnodes", "node_count"), "num_nodes"),
    **dict.fromkeys(("gpus", "gpu", "num_gpus", "accelerators"), "devices"),
    **dict.fromkeys(("mem", "ram"), "memory"),
    **dict.fromkeys(("cpu", "cores"), "cpus"),
    **dict.fromkeys(("cwd", "working_dir", "working_directory", "chdir"), "workdir"),
    **dict.fromkeys(("dependency", "dependencies", "needs", "after"), "depends_on"),
    **dict.fromkeys(("environment", "envs"), "env"),
    **dict.fromkeys(("user", "queue", "project", "account"), "tenant"),
    **dict.fromkeys(("max_retries", "max_restarts", "restarts"), "retries"),
    **dict.fromkeys(("bandwidth", "speed"), "capacity"),
}


class Spec(BaseModel):
    """What all specs share: unknown fields are errors, types are not guessed, values do not change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def validate(model: type[M], document: Document) -> M:
    """The document as a model.

    Raises:
        SpecError: one problem for each thing that is wrong, in the order of the file.
    """
    if not isinstance(document.value, dict):
        found = _found(document.value)
        fields = ", ".join(list(model.model_fields)[:5])
        raise SpecError(
            [
                document.problem(
                    (), f"must be a mapping of keys to values, not {found}", f"with keys such as {fields}"
                )
            ]
        )
    halves = list(_surrogates(document, document.value, ()))
    if halves:
        raise SpecError(sorted(halves, key=lambda p: (p.line, p.column)))
    try:
        return model.model_validate(document.value)
    except ValidationError as e:
        problems = [_problem(model, document, error) for error in e.errors(include_url=False)]
        raise SpecError(sorted(problems, key=lambda p: (p.line, p.column))) from None


def _surrogates(document: Document, value: Any, path: Path_) -> Iterator[SpecProblem]:
    """Halves of characters (``"\\ud800"``): no UTF-8, so they could be neither stored nor handed on."""
    if isinstance(value, str):
        found = _SURROGATE.search(value)
        if found:
            yield document.problem(path, _half(found[0]), "write the character itself")
    elif isinstance(value, dict):
        for key, item in value.items():
            found = _SURROGATE.search(key) if isinstance(key, str) else None
            if found:
                hint = "write the character itself"
                yield document.problem((*path, key), f"is a key that {_half(found[0])}", hint, at_key=True)
            yield from _surrogates(document, item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _surrogates(document, item, (*path, i))


def _half(character: str) -> str:
    return f"holds {ascii(character)[1:-1]}, half a character, which is no text"


def _problem(model: type[BaseModel], document: Document, error: ErrorDetails) -> SpecProblem:
    path: Path_ = tuple(step for step in error["loc"] if step != "[key]")
    if len(path) < len(error["loc"]):
        return document.problem(path, _message(error), at_key=True)
    if error["type"] == "extra_forbidden":
        return document.problem(path, "is not a known field", _closest(model, path), at_key=True)
    if error["type"] == "missing":
        return document.problem(path, "is required", "add it", at_key=True)
    if error["type"] == "value_error" and not path:
        field, message = _named(model, error)
        return document.problem((field,) if field else (), message)
    return document.problem(path, _message(error))


def _named(model: type[BaseModel], error: ErrorDetails) -> tuple[str, str]:
    """A check of several fields may name the one to look at: 'field: message'."""
    message = _text(error)
    field, colon, rest = message.partition(": ")
    return (field, rest) if colon and field in model.model_fields else ("", message)


def _message(error: ErrorDetails) -> str:
    kind, ctx, given = error["type"], error.get("ctx", {}), _found(error["input"])
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, not {given}"
    match kind:
        case "greater_than":
            return f"must be greater than {_number(ctx['gt'])}, not {given}"
        case "greater_than_equal":
            return f"must be {_number(ctx['ge'])} or more, not {given}"
        case "less_than_equal":
            return f"must be {_number(ctx['le'])} or less, not {given}"
        case "finite_number":
            return f"must be a finite number, not {given}"
        case "literal_error":
            return f"must be one of {ctx['expected']}, not {given}"
        case "string_too_short" | "too_short":
            return "must not be empty"
        case "string_too_long" | "too_long":
            return f"is too long: at most {ctx['max_length']}"
        case "int_parsing_size":
            return "is too large a number"
        case "string_pattern_mismatch":
            return f"must match {ctx['pattern']}, not {given}"
    return _text(error)


def _number(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else str(bound)


def _text(error: ErrorDetails) -> str:
    cause = error.get("ctx", {}).get("error")
    return str(cause) if cause is not None else error["msg"]


def _found(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return _NAMES[type(value)]
    text = repr(value) if isinstance(value, str) else str(value)
    text = text if len(text) <= 60 else text[:59] + "…"
    return f"the text {text}" if isinstance(value, str) else text


def _closest(model: type[BaseModel], path: Path_) -> str:
    """Which field was meant: by what it is called elsewhere, else by its letters."""
    name, fields = str(path[-1]), _fields_at(model, path[:-1])
    other = _ELSEWHERE.get(name.lower().replace("-", "_"))
    return f"it is called {other!r} here" if other in fields else did_you_mean(name, fields)


def _fields_at(model: type[BaseModel], path: Path_) -> list[str]:
    """Names of the fields of the model that lies at a path."""
    current: type[BaseModel] | None = model
    for step in path:
        if isinstance(step, int):
            continue
        info = current.model_fields.get(step) if current else None
        current = _model_in(info.annotation) if info else None
    return list(current.model_fields) if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
