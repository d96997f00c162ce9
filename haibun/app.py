"""The one place that wires it all together: names to policies and placers, files to engines."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from haibun.core.demand import Rates
from haibun.core.engine import Engine, Stages
from haibun.core.events import Configured, NodeJoined
from haibun.core.stages import Placer, Policy
from haibun.core.state import State
from haibun.core.vocabulary import Cluster
from haibun.place.consolidated import Consolidated

POLICY_GROUP = "haibun.policies"
PLACERS: dict[str, type[Placer]] = {Consolidated.name: Consolidated}


class UnknownPolicyError(ValueError):
    """No policy goes by that name, or it does not take that parameter; the message lists what there is."""


def policies() -> dict[str, EntryPoint]:
    """Names of all installed policies, ours and third parties', sorted. Nothing is imported."""
    found = {point.name: point for point in entry_points(group=POLICY_GROUP)}
    return dict(sorted(found.items()))


def make_policy(name: str, params: Mapping[str, Any] | None = None) -> Policy:
    """The policy of that name, with parameters named as in its paper.

    Raises:
        UnknownPolicyError: there is no such policy or parameter, or the policy refuses a value.
    """
    point = policies().get(name)
    if point is None:
        hint = _close(name, policies())
        raise UnknownPolicyError(f"there is no policy {name!r};{hint} there are: {', '.join(policies())}")
    cls = point.load()
    known = {n: p.default for n, p in inspect.signature(cls).parameters.items() if n != "self"}
    for param in params or {}:
        if param not in known:
            takes = ", ".join(known) or "none"
            hint = _close(param, known)
            raise UnknownPolicyError(
                f"policy {name} has no parameter {param!r};{hint} its parameters: {takes}"
            )
    try:
        policy: Policy = cls(**_fitted(name, params, known))
    except (TypeError, ValueError) as e:
        raise UnknownPolicyError(str(e) if str(e).startswith(name) else f"policy {name}: {e}") from e
    return policy


def _close(name: str, known: Iterable[str]) -> str:
    """`` did you mean 'fifo'?``, where something known is close."""
    close = get_close_matches(name, known, 1)
    return f" did you mean {close[0]!r}?" if close else ""


def _fitted(policy: str, params: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with the types of the defaults: ``1`` where a float is wanted, ``1`` where a list is."""
    if not params:
        return {}
    from haibun.spec.params import check_params  # brings pydantic with it: not for those who set nothing

    unset = {n: None if d is inspect.Parameter.empty else d for n, d in defaults.items()}
    return check_params(policy, params, unset)


def make_stages(policy: str, params: Mapping[str, Any] | None = None, placer: str = "consolidated") -> Stages:
    """The stages of a decision, by the names of their parts.

    Raises:
        UnknownPolicyError: a name or parameter is not known.
    """
    if placer not in PLACERS:
        raise UnknownPolicyError(f"there is no placer {placer!r}; there are: {', '.join(PLACERS)}")
    return Stages(make_policy(policy, params), PLACERS[placer]())


def make_engine(
    cluster: Cluster,
    policy: str = "fifo",
    params: Mapping[str, Any] | None = None,
    *,
    rates: Rates | None = None,
    placer: str = "consolidated",
    at: float = 0.0,
) -> Engine:
    """An engine over a cluster that is there from time ``at`` on; for the twin and for tests.

    Raises:
        UnknownPolicyError: a name or parameter is not known.
    """
    engine = Engine(State(rates), make_stages(policy, params, placer))
    engine.apply(Configured(at, policy, dict(params or {}), placer))
    for node in cluster.nodes:
        engine.apply(NodeJoined(at, node))
    return engine


def prepare_kernels(say: Callable[[str], None] | None = None) -> float:
    """Load the compiled kernels of all shipped stages, compiling them where no earlier run has; returns the seconds.

    ``say`` is told beforehand if they must be compiled (some twenty seconds; the code is then cached for later runs).
    """
    from haibun.core.events import JobSubmitted
    from haibun.core.vocabulary import DeviceGroup, Job, Node, Shape

    started = time.monotonic()
    if say is not None and not _kernels_cached():
        say("Compiling the decision kernels, once for this machine (about twenty seconds) ...")
    cluster = Cluster((Node("a", (DeviceGroup("x", 2),)), Node("b", (DeviceGroup("x", 2),))))
    for policy in ("fifo", "srtf", "tiresias"):
        engine = make_engine(cluster, policy)
        jobs = [Job(str(i), (Shape(n),)) for i, n in enumerate((3, 2, 1))]
        engine.handle([JobSubmitted(0.0, job) for job in jobs], 0.0)
    return time.monotonic() - started


def _kernels_cached() -> bool:
    from haibun.place import kernel

    cache = kernel.plan._cache  # type: ignore[attr-defined]
    return any(Path(cache.cache_path).glob(f"{Path(kernel.__file__).stem}.plan*.nbi"))
