"""Verdicts of golden answers: the checker of some modules over the questions of a bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from gateway.cli.offline import fail, file_bytes
from gateway.core.decision import (
    CheckRequest,
    DecisionId,
    InForce,
    Permitted,
    PointId,
    Proposal,
    RegisterValue,
    Repaired,
    Verdict,
)
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagValue
from gateway.inference.bundle.files import BundleError
from gateway.inference.bundle.manifest import GOLDEN_FILE, Bundle
from gateway.inference.golden import Golden, GoldenCycle, GoldenRules, Replay, ranged
from gateway.inference.seal import seal
from gateway.solver.checking.terms import Budget
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.assumed_tags import assumed_tags
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks

_PATIENCE_MS = 10_000  # a machine that pauses makes no answer unknown
_MARGIN_S, _EFFECT_S = 0.2, 0.3  # a proposal holds a cycle and this; it acts so long after the readings

Told = tuple[str, tuple[int, ...]]  # a verdict's name, and the counts written instead where it is a repair


class Judge:
    """The checker of some modules, over the questions of a bundle: each answer by itself, as after a gap."""

    def __init__(self, bundle: Bundle, golden: Golden, checks: Checks, rules: GoldenRules) -> None:
        self._golden, self._checks, self.rules = golden, checks, rules
        self._cycle_s = bundle.cycle_s
        self._inputs = [TagId(spec.tag) for spec in bundle.manifest.inputs]
        self._outputs = [TagId(spec.tag) for spec in bundle.manifest.outputs]

    @classmethod
    def of(cls, bundle: Bundle, golden: Golden, files: Sequence[Path]) -> Judge:
        """Raises `BundleError` for modules of another plant; a module that is none ends the verb."""
        try:
            contents = [(file_bytes(path), path.name) for path in files]
            tags = {tag: known for data, _ in contents for tag, known in assumed_tags(data).items()}
            tags = _as_registers(bundle, golden, tags)
            modules = [compile_module(data, name, tags) for data, name in contents]
            checks = Checks(RuleSet.of(modules, 1), Budget(timeout_ms=_PATIENCE_MS))
        except ModuleRefusedError as exc:
            fail("\n".join(f"{p.source}:{p.line}:{p.column}: {p.problem}" for p in exc.problems))
        digests = {
            module.id: hashlib.sha256(data).hexdigest()
            for module, (data, _) in zip(modules, contents, strict=True)
        }
        known = golden.rules
        hold_s = known.hold_s if known is not None else bundle.cycle_s + _MARGIN_S
        effect_s = known.effect_delay_s if known is not None else _EFFECT_S
        return cls(bundle, golden, checks, GoldenRules(digests, hold_s, effect_s))

    def verdict(self, one: Replay) -> Told:
        """Of this machine's counts: its name, and the counts written instead where they were repaired."""
        result, _ = self._checks.check(self._request(one))
        return _named(result.verdict, self._outputs)

    def _request(self, one: Replay) -> CheckRequest:
        run, now = self._golden.runs[one.run], one.at * self._cycle_s
        values = {
            tag: TagValue(
                value=float(text), status=StatusCode.Good, source_ts_ns=None, server_ts_ns=0, confirmed_at=now
            )
            for tag, text in zip(self._inputs, one.asked.inputs, strict=True)
        }
        past = {tag: list(_past(run, one.at, at, self._cycle_s)) for at, tag in enumerate(self._outputs)}
        ranges = [ranged(limits) for limits in self._golden.outputs]
        wanted = tuple(
            RegisterValue(tag, count, limits.value(count))
            for tag, count, limits in zip(self._outputs, one.counts, ranges, strict=True)
        )
        return CheckRequest(
            decision=DecisionId(f"golden-{one.run}-{one.at}"),
            point=PointId("golden"),
            generation=1,
            inputs=values,
            taken_at=now,
            history={tag: tuple(entries) for tag, entries in past.items()},
            held_s={tag: entries[1].ceased_s_ago if entries[1:] else 0.0 for tag, entries in past.items()},
            proposal=Proposal(values=wanted, by="model"),
            carried=None,
            hold_s=self.rules.hold_s,
            effect_delay_s=self.rules.effect_delay_s,
        )


def _past(run: tuple[GoldenCycle, ...], upto: int, output: int, cycle_s: float) -> Iterator[InForce]:
    """Values an output had in a run, newest first, each with how long ago it last had it."""
    newest: Fraction | None = None
    for at in range(upto, -1, -1):
        value = Fraction(run[at].in_force[output])
        if value != newest:
            yield InForce(value, (upto - at) * cycle_s)
        newest = value


def _named(verdict: Verdict, outputs: list[TagId]) -> Told:
    kind = type(verdict).__name__.lower()
    if not isinstance(verdict, Permitted | Repaired):
        return kind, ()
    counts = {value.tag: value.raw for value in verdict.setpoints}
    return kind, tuple(counts[tag] for tag in outputs) if isinstance(verdict, Repaired) else ()


def _as_registers(
    bundle: Bundle, golden: Golden, tags: Mapping[TagId, TagDefinition]
) -> dict[TagId, TagDefinition]:
    """The modules' tags, outputs with the counts of the golden answers; raises for tags of another plant."""
    manifest = bundle.manifest
    limits = {TagId(o.tag): ranged(r) for o, r in zip(manifest.outputs, golden.outputs, strict=True)}
    known = {*limits, *(TagId(spec.tag) for spec in manifest.inputs)}
    for tag in tags:
        if tag not in known:
            problem = f"it has no tag `{tag}`, which the modules ask for: name modules of its plant"
            raise BundleError(bundle.directory, problem)
    return {
        tag: replace(
            definition,
            scale=limits[tag].scale,
            offset=limits[tag].offset,
            raw_range=(limits[tag].low, limits[tag].high),
        )
        if tag in limits
        else definition
        for tag, definition in tags.items()
    }


def check_same_rules(bundle: Bundle, golden: Golden, judge: Judge) -> None:
    """Raise `BundleError` where verdicts were given under other modules, or by nobody."""
    if golden.rules is None:
        problem = "nobody wrote verdicts into it: leave --rules away, or write them with --write"
        raise BundleError(bundle.directory, problem)
    ours, theirs = judge.rules.modules, golden.rules.modules
    if ours != theirs:
        wanted = ", ".join(f"`{name}` ({digest[:12]}…)" for name, digest in sorted(theirs.items()))
        given = ", ".join(f"`{name}` ({digest[:12]}…)" for name, digest in sorted(ours.items()))
        problem = f"its verdicts were given under {wanted}, and these are {given}: name those files"
        raise BundleError(bundle.directory, problem)


@dataclass(frozen=True, slots=True)
class Written:
    """Verdicts in a bundle: how many of each kind, under which modules; the bundle's new digest."""

    verdicts: dict[str, int]
    modules: tuple[str, ...]
    digest: str

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {"verdicts": self.verdicts, "modules": list(self.modules), "digest": self.digest}

    def sentence(self) -> str:
        """For people."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.verdicts.items())
        under = ", ".join(self.modules)
        return (
            f"{sum(self.verdicts.values())} verdicts ({kinds}) under {under}; sealed as {self.digest[:12]}…"
        )


def write_verdicts(
    bundle: Bundle,
    golden: Golden,
    judge: Judge,
    told: Mapping[tuple[int, int], Told],
) -> Written:
    """Put verdicts of the golden answers beside them and seal the bundle."""
    runs = tuple(
        tuple(
            msgspec.structs.replace(cycle, verdict=told[run, at][0], repaired=told[run, at][1])
            if cycle.counts
            else cycle
            for at, cycle in enumerate(cycles)
        )
        for run, cycles in enumerate(golden.runs)
    )
    new = Golden(golden.outputs, runs, judge.rules)
    (bundle.directory / GOLDEN_FILE).write_bytes(msgspec.json.encode(new) + b"\n")
    sealed = seal(bundle.directory)
    kinds = [verdict for verdict, _ in told.values()]
    return Written(
        verdicts={kind: kinds.count(kind) for kind in sorted(set(kinds))},
        modules=tuple(judge.rules.modules),
        digest=sealed.digest,
    )
