"""Types of fields that several specs use: quantities with units, as text or as plain numbers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from haibun.spec.units import parse_bytes, parse_duration, parse_rate


def _quantity(kind: str, *examples: str | int) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "number"], "description": kind, "examples": list(examples)})


def _positive(parse: Any) -> BeforeValidator:
    def check(value: Any) -> Any:
        amount = parse(value)
        if amount <= 0:
            raise ValueError(f"must be greater than 0, not {value}")
        return amount

    return BeforeValidator(check)


Bytes = Annotated[int, BeforeValidator(parse_bytes), _quantity("bytes", "4GiB", "512M", 1073741824)]
Seconds = Annotated[float, BeforeValidator(parse_duration), _quantity("seconds", "0.5ms", "2h30m", 90)]
PositiveSeconds = Annotated[
    float, _positive(parse_duration), _quantity("seconds, greater than 0", "2h30m", 5400)
]
BytesPerSecond = Annotated[float, _positive(parse_rate), _quantity("bytes/s", "10GB/s", "25Gbit/s")]
Text = Annotated[str, Field(min_length=1, max_length=1_000)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
