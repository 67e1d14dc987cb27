"""The SMT-LIB 2.6 script of a certificate: steps not eliminated, rules as the user wrote them.

It is a deterministic function of the certificate and the module texts. A solver that answers as each
`(set-info :status ...)` says has repeated the decision without any of this gateway's algebra: `condense` is
used for the list of instants and duties alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from gateway.core.tag import decimal_text
from gateway.solver.certificates.claims import Scene
from gateway.solver.certificates.smtlib_terms import (
    NoTextError,
    Term,
    Writer,
    constant,
    number_text,
    plus,
    quoted,
    times,
)
from gateway.solver.checking.condense import Duty, acts_in
from gateway.solver.language.syntax import For, Ref


def script(title: Sequence[str], scenes: Sequence[Scene]) -> str:
    """One script with one `check-sat` for each scene; each in a scope of its own where there are several."""
    sections = [_Section(scene) for scene in scenes]
    bodies = [section.lines() for section in sections]
    logic = "QF_NRA" if any(section.degree > 1 for section in sections) else "QF_LRA"
    lines = [f"; {_one_line(text)}" for text in title]
    lines += [
        "(set-info :smt-lib-version 2.6)",
        '(set-info :category "industrial")',
        "(set-option :produce-models true)",
        "(set-option :produce-unsat-cores true)",
        f"(set-logic {logic})",
    ]
    for number, (scene, body) in enumerate(zip(scenes, bodies, strict=True), start=1):
        lines += ["", f"; claim {number} of {len(scenes)}: {_one_line(_words(scene))}"]
        lines += [*body] if len(scenes) == 1 else ["(push 1)", *body, "(pop 1)"]
    return "\n".join([*lines, "(exit)", ""])


def script_symbols(scene: Scene) -> frozenset[str]:
    """The symbols whose premises a scene's script states."""
    section = _Section(scene)
    section.lines()
    return frozenset(section.used)


class _Section:
    """One claim's assertions."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.used: dict[str, None] = {}
        self.degree = 1

    def lines(self) -> list[str]:
        states = self._states()
        duties: list[str] = []
        names: list[str] = []
        for duty in self.scene.duties:
            name = quoted(self._duty_name(duty))
            names.append(name)
            duties += [
                f"; {_one_line(self._origin(duty))}",
                f"(define-fun {name} () Bool {self._duty(duty)})",
            ]
        for symbol in self.scene.witness:
            self.used.setdefault(symbol)
        goal = (
            f"(assert (! (not (and true {' '.join(names)})) :named |goal: one of these duties is not met|))"
        )
        expected = self.scene.claim.expected
        return [
            *self._premises(),
            *states,
            *duties,
            *self._witness(),
            goal,
            f"(set-info :status {expected})",
            "(check-sat)",
        ]

    def _premises(self) -> Iterable[str]:
        premises = self.scene.premises(self.used)
        for name, (low, high) in premises.items():
            symbol = quoted(name)
            yield f"(declare-const {symbol} Real)"
            if low == high:
                said = f"(= {symbol} {number_text(low)})"
            else:
                said = f"(<= {number_text(low)} {symbol} {number_text(high)})"
            yield f"(assert (! {said} :named {quoted(f'premise {name}')}))"
        for name, values in self.scene.choices().items():
            if name in premises:
                either = " ".join(f"(= {quoted(name)} {number_text(v)})" for v in values)
                yield f"(assert (! (or {either}) :named {quoted(f'one of {name}')}))"

    def _witness(self) -> Iterable[str]:
        for name, value in sorted(self.scene.witness.items()):
            said = f"(= {quoted(name)} {number_text(value)})"
            yield f"(assert (! {said} :named {quoted(f'witness {name}')}))"

    def _symbol(self, name: str) -> Term:
        self.used.setdefault(name)
        return Term(quoted(name))

    def _states(self) -> Iterable[str]:
        """Values of the variables with dynamics at every later instant, each by its step as written.

        In the proposal's own course and, where a duty asks for it, in that of the backup.
        """
        found: list[str] = []
        for backup in (False, True):
            last = max((d.instant for d in self.scene.duties if (d.backup >= 0) is backup), default=0)
            for k in range(last):
                found += self._step(k, backup=backup)
        return found

    def _step(self, k: int, *, backup: bool) -> Iterable[str]:
        rules, plan = self.scene.rules, self.scene.plan
        segment = plan.segments[k]
        part = (segment.end - segment.start) / plan.step
        writer = Writer(self._during(k, backup=backup))
        for tag, tree in rules.dynamics.items():
            before = self._at(tag, k, backup=backup)
            try:
                later = writer.number(tree)
            except NoTextError:
                later = writer.form(rules.forms[tag])
            change = plus(later, before, "-")
            after = plus(before, times(constant(part), change))
            name = self._at(tag, k + 1, backup=backup)
            said = f"{tag} {decimal_text(segment.end)} s after acquisition"
            yield f"; {_one_line(said)}{', the backup acting since some moment or not yet' if backup else ''}"
            yield f"(define-fun {name.text} () Real {after.text})"
        self.degree = max(self.degree, writer.degree)

    def _at(self, tag: str, instant: int, *, backup: bool) -> Term:
        if instant == 0:
            return self._symbol(f"x:{tag}")
        if tag in self.scene.rules.forms:
            return Term(quoted(f"{tag}@{instant}{' backup' if backup else ''}"))
        return self._symbol(f"p{instant}:{tag}")

    def _during(self, k: int, *, backup: bool) -> Callable[[Ref | For], Term]:
        rules, segment = self.scene.rules, self.scene.plan.segments[k]
        measured = {str(v.tag) for v in rules.measured}

        def read(ref: Ref | For) -> Term:
            name = ref.key
            if name in rules.forms:
                return self._at(name, k, backup=backup)
            if name in measured:
                return self._symbol(f"m{k}:{name}")
            if name in rules.disturbances:
                return self._symbol(f"d{k}:{name}")
            return self._symbol(f"{acts_in(segment, k, name, backup=backup)}:{name}")

        return read

    def _duty(self, duty: Duty) -> str:
        """The rule's own tree; its condensed form where the tree has a construct without a text."""
        writer = Writer(self._at_duty(duty))
        try:
            text = writer.truth(self.scene.rule(duty).tree)
        except NoTextError:
            writer = Writer(lambda ref: self._symbol(ref.key))
            text = writer.formula(duty.formula)
        self.degree = max(self.degree, writer.degree)
        return text

    def _at_duty(self, duty: Duty) -> Callable[[Ref | For], Term]:
        """What a reference says at a duty's instant, with the values that act in it."""
        rules = self.scene.rules
        measured = {str(v.tag) for v in rules.measured}

        def now(tag: str) -> Term:
            drifts = duty.drift >= 0 and tag not in rules.forms
            return self._at(tag, duty.drift if drifts else duty.instant, backup=duty.backup >= 0)

        def read(ref: Ref | For) -> Term:
            if isinstance(ref, For):
                return self._symbol(f"for:{ref.seconds} {ref.row}")
            if ref.form == "now":
                return now(ref.name) if ref.name in measured else self._symbol(f"{acting(duty)}:{ref.name}")
            if ref.name in measured and ref.form in {"prev", "rate"}:
                was = self._symbol(f"was:{ref.name}")
                change = times(constant(1 / self.scene.plan.step), plus(now(ref.name), was, "-"))
                return was if ref.form == "prev" else change
            return self._symbol(f"old:{ref.name}" if ref.form == "prev" else f"{ref.form}:{ref.name}")

        return read

    def _duty_name(self, duty: Duty) -> str:
        rule = self.scene.rule(duty)
        values = "values in force" if duty.old else "new values"
        if duty.backup >= 0:
            values = f"backup's values of segment {duty.backup}"
        return f"{rule.module}/{rule.constraint.id} at {_seconds(self.scene, duty)} s, {values}"

    def _origin(self, duty: Duty) -> str:
        rule = self.scene.rule(duty)
        return f"{rule.constraint.kind}, {rule.where}: {rule.constraint.text}"


def acting(duty: Duty) -> str:
    """The kind of symbol of the actions in a duty: `new`, `old`, or `b{k}` of the backup."""
    if duty.backup >= 0:
        return f"b{duty.backup}"
    return "old" if duty.old else "new"


def _seconds(scene: Scene, duty: Duty) -> str:
    return decimal_text(Fraction(scene.plan.instant(duty.instant)))


def _words(scene: Scene) -> str:
    claim = scene.claim
    action = ", ".join(f"{tag} = {decimal_text(value)}" for tag, value in sorted(claim.action.items()))
    if claim.says == "holds":
        return f"{claim.of}, {action}: no duty can be missed under the assumptions (unsat)"
    told = claim.counterexample
    name = f"{told.module}/{told.constraint}" if told is not None else ""
    return f"{claim.of}, {action}: the witness violates {name} (sat)"


def _one_line(text: str) -> str:
    return " ".join(text.split())
