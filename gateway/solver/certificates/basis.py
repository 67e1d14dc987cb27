"""The rules one decision was judged under, as a document that outlives them: the basis of a certificate.

A basis names the modules by revision and digest, the tags' definitions and every assumption in force. With
the module texts, kept beside it by digest, the rule set can be built again at any time, without the gateway.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from gateway.core.durable import write_durably
from gateway.core.errors import StorageError
from gateway.core.override import Override, overrides_of, plain
from gateway.core.tag import TagDefinition, TagId, TagKind, decimal_text, number_of
from gateway.solver.checking.terms import Budget
from gateway.solver.errors import CertificateError, ModuleRefusedError
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module, Variable
from gateway.solver.rules.ruleset import RuleSet

Plain = Mapping[str, Any]

_encoder = msgspec.json.Encoder(order="sorted")


def canonical(document: object) -> bytes:
    """One spelling of plain data: sorted keys, no white space, UTF-8."""
    return _encoder.encode(document)


@dataclass(frozen=True, slots=True)
class Basis:
    """One rule set's document. `encoded` is its one spelling."""

    document: Plain
    encoded: bytes

    @staticmethod
    def of(rules: RuleSet, budget: Budget | None = None) -> Basis:
        """The basis of a rule set, judged within a budget for each query."""
        document = _document(rules, budget or Budget(), importlib.metadata.version("o3-gateway"))
        return Basis(document, canonical(document))

    @staticmethod
    def read(document: Plain) -> Basis:
        """The basis in a certificate."""
        return Basis(document, canonical(document))

    @property
    def rule_set_digest(self) -> str:
        """Digest of the rule set."""
        return str(self.document["rule_set_digest"])

    @property
    def texts_needed(self) -> tuple[str, ...]:
        """Digests of the module texts."""
        return tuple(str(m["digest"]) for m in self.document["modules"])

    @property
    def overrides(self) -> tuple[Override, ...]:
        """What was overridden; raises `ValueError` for what is no list of overrides."""
        return overrides_of(self.document.get("overrides", ()))

    def rules(self, texts: Mapping[str, bytes], generation: int) -> RuleSet:
        """The rule set again, from the texts by digest.

        Raises `CertificateError` where a text is missing or another, and where what comes out is not what
        this document says.
        """
        try:
            tags = {TagId(t): _definition(TagId(t), d) for t, d in self.document["tags"].items()}
            modules = [self._module(m, texts, tags) for m in self.document["modules"]]
            rules = RuleSet.of(modules, generation, self.overrides)
            again = _document(rules, _budget(self.document), str(self.document["gateway"]))
        except ModuleRefusedError as exc:
            raise CertificateError(f"a module of the certificate cannot be used: {exc}") from exc
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as exc:
            raise CertificateError(f"the rule set in the certificate cannot be read: {exc!r}") from exc
        if canonical(again) != self.encoded:
            raise CertificateError(
                "the module texts do not give the rule set that the certificate states: "
                + _difference(again, self.document)
            )
        return rules

    def _module(self, said: Plain, texts: Mapping[str, bytes], tags: Mapping[TagId, TagDefinition]) -> Module:
        digest = str(said["digest"])
        text = texts.get(digest)
        if text is None:
            raise CertificateError(f"the text of module `{said['id']}` ({digest[:12]}) is not there")
        if hashlib.sha256(text).hexdigest() != digest:
            raise CertificateError(
                f"the text of module `{said['id']}` is not the one of digest {digest[:12]}"
            )
        return replace(compile_module(text, str(said["source"]), tags), priority=said["priority"])


class BasisStore:
    """Bases and module texts by digest in one folder; nothing is ever changed there. Methods block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, rules: RuleSet) -> Basis:
        """Store a rule set's basis and texts; durable when this returns. Raises `StorageError`."""
        basis = Basis.of(rules)
        try:
            for module in rules.modules:
                self._put(f"module-{module.digest}.json", module.text.encode())
            self._put(f"rules-{hashlib.sha256(basis.encoded).hexdigest()}.json", basis.encoded)
        except OSError as exc:
            raise StorageError(
                f"the evidence of a rule set cannot be kept in `{self._folder}`: {exc.strerror or exc}"
            ) from exc
        return basis

    def bases(self, rule_set_digest: str) -> Iterator[Basis]:
        """Every kept basis of a rule set: more than one where only tags or the gateway's version changed."""
        for path in sorted(self._folder.glob("rules-*.json")):
            try:
                basis = Basis.read(json.loads(path.read_bytes()))
            except (OSError, ValueError):
                continue  # not what was kept: its digest would not fit either
            if basis.document.get("rule_set_digest") == rule_set_digest:
                yield basis

    def texts(self, basis: Basis) -> dict[str, bytes]:
        """The module texts of a basis, those that are there."""
        found: dict[str, bytes] = {}
        for digest in basis.texts_needed:
            path = self._folder / f"module-{digest}.json"
            if path.is_file():
                found[digest] = path.read_bytes()
        return found

    def _put(self, name: str, data: bytes) -> None:
        path = self._folder / name
        if not (path.is_file() and path.read_bytes() == data):
            write_durably(path, data)


def _document(rules: RuleSet, budget: Budget, version: str) -> dict[str, Any]:
    return {
        "rule_set_digest": rules.digest,
        "gateway": version,
        "modules": [
            {
                "id": m.id,
                "revision": m.revision,
                "digest": m.digest,
                "priority": m.priority,
                "source": m.source,
            }
            for m in rules.modules
        ],
        "step_s": decimal_text(rules.modules[0].step) if rules.modules else None,
        "tags": {str(tag): _tag(d) for tag, d in rules.definitions.items()},
        "assumptions": {str(tag): _assumptions(v) for tag, v in rules.variables.items()},
        "disturbances": {name: _pair(ends) for name, ends in rules.disturbances.items()},
        "budget": {"rlimit": budget.rlimit, "timeout_ms": budget.timeout_ms},
    } | ({"overrides": plain(rules.overrides)} if rules.overrides else {})


def _tag(definition: TagDefinition) -> dict[str, Any]:
    """Everything that the check asks of a tag; a deadband only where there is one."""
    held_back = {"deadband": decimal_text(definition.deadband)} if definition.deadband else {}
    return held_back | {
        "kind": definition.kind.value,
        "unit": definition.unit,
        "eu_range": None if definition.eu_range is None else _pair(definition.eu_range),
        "raw_type": definition.raw_type,
        "raw_range": None if definition.raw_range is None else list(definition.raw_range),
        "scale": decimal_text(definition.scale),
        "offset": decimal_text(definition.offset),
        "writable": definition.writable,
        "protected": definition.protected,
    }


def _definition(tag: TagId, said: Plain) -> TagDefinition:
    raw, eu = said["raw_range"], said["eu_range"]
    return TagDefinition(
        id=tag,
        kind=TagKind(said["kind"]),
        unit=said["unit"],
        eu_range=None if eu is None else (number_of(eu[0]), number_of(eu[1])),
        raw_type=said["raw_type"],
        raw_range=None if raw is None else (int(raw[0]), int(raw[1])),
        scale=number_of(said["scale"]),
        offset=number_of(said["offset"]),
        deadband=number_of(said.get("deadband", "0")),
        writable=_truth(said["writable"]),
        protected=_truth(said["protected"]),
    )


def _assumptions(v: Variable) -> dict[str, Any]:
    """What is assumed of a tag: the weakest of all modules in force (S3)."""
    return {
        "role": "action" if v.action else "state" if v.hidden else "measured",
        "error": decimal_text(v.error),
        "max_age_s": None if v.max_age is None else decimal_text(v.max_age),
        "max_rate": None if v.max_rate is None else decimal_text(v.max_rate),
        "physical": None if v.physical is None else _pair(v.physical),
        "valid": _pair(v.range),
        "min_on_s": decimal_text(v.min_on),
        "min_off_s": decimal_text(v.min_off),
        "accept_quality": sorted(v.accept_quality),
    }


def _pair(ends: tuple[Fraction, Fraction]) -> list[str]:
    return [decimal_text(ends[0]), decimal_text(ends[1])]


def _budget(document: Plain) -> Budget:
    said = document["budget"]
    return Budget(rlimit=_whole(said["rlimit"]), timeout_ms=_whole(said["timeout_ms"]))


def _truth(said: object) -> bool:
    """A truth; 1 is none, though it is equal to one."""
    if not isinstance(said, bool):
        raise TypeError(f"`{said}` is neither true nor false")
    return said


def _whole(said: object) -> int:
    """A whole number, spelled as one."""
    if type(said) is not int:
        raise TypeError(f"`{said}` is no whole number")
    return said


def _difference(one: Plain, other: Plain) -> str:
    keys = [key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]
    return "`" + "`, `".join(keys) + "` differ" if keys else "their spelling differs"
