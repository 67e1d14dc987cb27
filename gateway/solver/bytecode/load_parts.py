"""The sections of a compiled module, one after the other, each against those before it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.solver.bytecode.encode import Section
from gateway.solver.bytecode.opcodes import MAX_INDEX, MAX_LABELS, MAX_SOURCE, MAX_VARIABLES, Op, Type
from gateway.solver.bytecode.program import (
    FORMS,
    KINDS,
    SORTS,
    BackupCode,
    Block,
    Declaration,
    Origin,
    Program,
    RuleCode,
    Slot,
    Timer,
    slot_key,
)
from gateway.solver.bytecode.reading import BadBytesError, Reader
from gateway.solver.bytecode.verify import Verifier
from gateway.solver.language.schema import LANGUAGE
from gateway.solver.modules.module import Case, Hold, Interval, Move, Ramp

_OF_ACTIONS = frozenset(("kept_on", "may_rise", "held"))
_OF_MEASURED = frozenset(("good", "age"))


@dataclass(slots=True)
class Parts:
    """One file's sections; each is read once. Every method raises `BadBytesError` for what is wrong."""

    sections: Mapping[Section, Reader]
    digest: str
    _names: frozenset[str] = field(default=frozenset())

    def program(self) -> Program:
        """Everything, or the first thing that is wrong."""
        name, revision, priority, horizon, step = self._head()
        variables = self._of(Section.VARIABLES).many("variables", self._variable, MAX_VARIABLES)
        self._names = frozenset(v.name for v in variables)
        disturbances = self._of(Section.DISTURBANCES).many("disturbances", self._disturbance)
        constants = self._of(Section.CONSTANTS).many("constants", self._constant, MAX_INDEX)
        timers = self._timers()
        disturbing = tuple(d[0] for d in disturbances)
        slots = self._of(Section.SLOTS).many(
            "slots", lambda: self._slot(variables, disturbing, timers), MAX_INDEX
        )
        origins = self._of(Section.ORIGINS).many("expressions", self._origin, MAX_INDEX)
        blocks, starts = self._blocks(constants, slots, len(origins))
        use = _Use(blocks, starts, slots)
        self._check_timers(timers, use)
        rules = self._of(Section.RULES).many("rules", lambda: self._rule(use))
        dynamics = self._of(Section.DYNAMICS).many("dynamics", lambda: self._dynamics(use))
        backup = self._of(Section.BACKUP).many("backup entries", lambda: self._backup(use))
        safe_set, terminal = self._set("safe set", use), self._set("terminal set", use)
        cases = self._of(Section.CASES).many("cases", self._case)
        return Program(
            language=LANGUAGE,
            digest=self.digest,
            id=name,
            revision=revision,
            priority=priority,
            horizon=horizon,
            step=step,
            variables=variables,
            disturbances=disturbances,
            constants=constants,
            slots=slots,
            blocks=blocks,
            origins=origins,
            timers=timers,
            rules=rules,
            dynamics=dynamics,
            backup=backup,
            safe_set=safe_set,
            terminal=terminal,
            cases=cases,
            source=self._source(),
        )

    def _of(self, section: Section) -> Reader:
        return self.sections[section]

    def _constant(self) -> Fraction:
        return self._of(Section.CONSTANTS).ratio("a constant")

    def _head(self) -> tuple[str, int, int, int, Fraction]:
        reader = self._of(Section.MODULE)
        name = reader.text("the module's id")
        revision = reader.number(8, "the revision", least=1)
        priority, horizon = reader.number(1, "the priority", 15), reader.number(2, "the horizon", 60)
        start = reader.at
        step = reader.ratio("the step")
        if step <= 0:
            raise BadBytesError(start, "the step is not above 0")
        return name, revision, priority, horizon, step

    def _variable(self) -> Declaration:
        reader = self._of(Section.VARIABLES)
        start = reader.at
        name, tag = reader.text("a variable's name"), reader.text("a tag")
        if not name.isidentifier():
            raise BadBytesError(start, "a variable's name is not one word")
        sort = reader.choice("a sort", SORTS)
        flags = reader.number(1, "the flags of a variable", 7)
        return Declaration(
            name=name,
            tag=tag,
            sort=sort,
            unit=reader.text("a unit"),
            action=bool(flags & 1),
            repair=bool(flags & 2),
            hidden=bool(flags & 4),
            range=reader.maybe("a range", self._interval),
            error=reader.ratio("an error"),
            error_reason=reader.text("an error's reason"),
            max_age=reader.maybe("a greatest age", reader.ratio),
            max_rate=reader.maybe("a greatest rate", reader.ratio),
            physical=reader.maybe("a physical range", self._interval),
            min_on=reader.ratio("a minimum time"),
            min_off=reader.ratio("a minimum time"),
            accept_quality=reader.many("qualities", lambda: reader.text("a quality"), MAX_LABELS),
            labels=reader.maybe("labels", lambda what: reader.many(what, self._label, MAX_LABELS)),
        )

    def _interval(self, what: str) -> Interval:
        return self._ordered(self._of(Section.VARIABLES), what)

    def _ordered(self, reader: Reader, what: str) -> Interval:
        start = reader.at
        low, high = reader.ratio(what), reader.ratio(what)
        if low > high:
            raise BadBytesError(start, f"{what} has its ends in the wrong order")
        return low, high

    def _label(self) -> tuple[str, int]:
        reader = self._of(Section.VARIABLES)
        name, start = reader.text("a label"), reader.at
        value = reader.ratio("a label's value")
        if value.denominator != 1:
            raise BadBytesError(start, "a label's value is not a whole number")
        return name, int(value)

    def _disturbance(self) -> tuple[str, Fraction, Fraction]:
        reader = self._of(Section.DISTURBANCES)
        start = reader.at
        name = reader.text("a disturbance's name")
        if name in self._names:
            raise BadBytesError(start, "a disturbance has the name of a variable")
        return (name, *self._ordered(reader, "a disturbance"))

    def _slot(
        self, variables: tuple[Declaration, ...], disturbances: tuple[str, ...], timers: tuple[Timer, ...]
    ) -> Slot:
        reader = self._of(Section.SLOTS)
        start = reader.at
        form = reader.choice("what a slot reads", FORMS)
        if form == "timer":
            index = reader.index(2, "a slot's timer", len(timers))
            return Slot(form, index, slot_key(form, timers[index].row, timers[index].seconds))
        if form == "disturbance":
            index = reader.index(2, "a slot's disturbance", len(disturbances))
            return Slot(form, index, slot_key(form, disturbances[index]))
        index = reader.index(2, "a slot's variable", len(variables))
        v = variables[index]
        if (form in _OF_ACTIONS and not v.action) or (form in _OF_MEASURED and (v.action or v.hidden)):
            raise BadBytesError(start, f"a slot reads `{form}` of a variable that has none")
        return Slot(form, index, slot_key(form, v.name))

    def _origin(self) -> Origin:
        reader = self._of(Section.ORIGINS)
        line, column = reader.number(4, "a line", least=1), reader.number(4, "a column", least=1)
        return Origin(line, column, reader.text("an expression"))

    def _timers(self) -> tuple[Timer, ...]:
        """Their blocks are judged once there are blocks."""
        reader = self._of(Section.TIMERS)

        def timer() -> Timer:
            start = reader.at
            seconds, row = reader.ratio("a duration"), reader.text("a row")
            if seconds < 0:
                raise BadBytesError(start, "a duration is negative")
            return Timer(seconds, row, reader.number(2, "a timer's block"))

        return reader.many("timers", timer)

    def _blocks(
        self, constants: tuple[Fraction, ...], slots: tuple[Slot, ...], origins: int
    ) -> tuple[tuple[Block, ...], tuple[int, ...]]:
        """All blocks, verified, and where each is listed in the file."""
        table, code, places = (self._of(s) for s in (Section.BLOCKS, Section.CODE, Section.MAP))
        first = code.at
        starts: list[int] = []
        verifier = Verifier(constants, len(slots), origins)

        def block() -> Block:
            starts.append(table.at)
            size = table.number(4, "the length of a block", least=1)
            result: Type = "truth" if table.flag("a block's type") else "number"
            start = code.at
            code.take(size, "a block")
            steps = verifier.decoded(Reader(code.data, start, start + size))
            verifier.check(steps, result)
            where = places.at
            found = Block(
                start - first, tuple(s for s, _ in steps), result, places.take(4 * len(steps), "a source map")
            )
            verifier.check_places(found, where)
            return found

        return table.many("blocks", block, MAX_INDEX), tuple(starts)

    def _check_timers(self, timers: tuple[Timer, ...], use: _Use) -> None:
        at = self._of(Section.TIMERS).at
        for timer in timers:
            block = use.block(timer.block, "truth", at, "a timer")
            if any(use.slots[s].form == "timer" for s in use.read[block]):
                raise BadBytesError(use.starts[block], "the condition of a timer reads a timer")

    def _rule(self, use: _Use) -> RuleCode:
        reader = self._of(Section.RULES)
        name, kind = reader.text("a rule's id"), reader.choice("a rule's kind", KINDS)
        flags = reader.number(1, "a rule's flags", 3)
        message, row = reader.text("a message"), reader.text("a row")
        return RuleCode(
            id=name,
            kind=kind,
            always=bool(flags & 1),
            monitor=bool(flags & 2),
            message=message,
            row=row,
            block=self._block_of(reader, use, "truth", "a rule"),
        )

    def _block_of(self, reader: Reader, use: _Use, result: Type, what: str) -> int:
        start = reader.at
        return use.block(reader.number(2, f"the block of {what}"), result, start, what)

    def _name(self, reader: Reader, what: str) -> str:
        start = reader.at
        name = reader.text(what)
        if name not in self._names:
            raise BadBytesError(start, f"{what} is not a variable of the module")
        return name

    def _dynamics(self, use: _Use) -> tuple[str, int]:
        reader = self._of(Section.DYNAMICS)
        name, start = self._name(reader, "what moves"), reader.at
        number = reader.number(2, "the block of a step")
        return name, use.block(number, "number", start, "a step", disturbed=True)

    def _backup(self, use: _Use) -> BackupCode:
        reader = self._of(Section.BACKUP)
        guard = reader.maybe("a guard", lambda what: self._block_of(reader, use, "truth", what))
        return BackupCode(guard, reader.many("moves", self._move))

    def _move(self) -> tuple[str, Move]:
        reader = self._of(Section.BACKUP)
        name = self._name(reader, "what a backup moves")
        match reader.number(1, "the kind of a move", 2):
            case 0:
                return name, Hold()
            case 1:
                return name, reader.ratio("a value")
            case _:
                return name, Ramp(reader.ratio("a target"), reader.ratio("a rate"))

    def _set(self, what: str, use: _Use) -> tuple[int, ...]:
        reader = self._of(Section.SETS)
        return reader.many(what, lambda: self._block_of(reader, use, "truth", f"a {what}"))

    def _case(self) -> Case:
        reader = self._of(Section.CASES)
        line = reader.number(4, "a line", least=1)
        start = reader.at
        given, previous, held, age = (self._numbers(reader) for _ in range(4))
        if given.keys() != self._names:
            raise BadBytesError(start, "a case does not give a value for every variable")
        bad = reader.many("bad readings", lambda: self._name(reader, "a bad reading"))
        violated = reader.many("violated rules", lambda: reader.text("a violated rule"))
        return Case(
            given=given,
            previous=previous,
            held_s=held,
            age_s=age,
            bad=frozenset(bad),
            violated=frozenset(violated),
            line=line,
        )

    def _numbers(self, reader: Reader) -> dict[str, Fraction]:
        def value() -> tuple[str, Fraction]:
            return self._name(reader, "what a case names"), reader.ratio("a value")

        return dict(reader.many("values", value))

    def _source(self) -> bytes:
        reader = self._of(Section.SOURCE)
        start, size = reader.at, reader.end - reader.at
        if size > MAX_SOURCE:
            raise BadBytesError(start, f"the source has {size} bytes; at most {MAX_SOURCE} are read")
        data = reader.take(size, "the source")
        try:
            data.decode()
        except UnicodeDecodeError as exc:
            raise BadBytesError(start + exc.start, "the source is not UTF-8 text") from None
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise BadBytesError(start, "the source is not the one whose digest the file states")
        return data


@dataclass(slots=True)
class _Use:
    """What refers to blocks must find the right kind."""

    blocks: tuple[Block, ...]
    starts: tuple[int, ...]  # where each is listed in the file
    slots: tuple[Slot, ...]
    read: list[frozenset[int]] = field(init=False)  # slots, by block

    def __post_init__(self) -> None:
        self.read = [frozenset(s.operand for s in b.code if s.op in {Op.LOAD, Op.TEST}) for b in self.blocks]

    def block(self, number: int, result: Type, at: int, what: str, *, disturbed: bool = False) -> int:
        """The number of a block, if it is one of that type."""
        if number >= len(self.blocks):
            raise BadBytesError(at, f"{what} is block {number} of {len(self.blocks)}, counted from 0")
        if self.blocks[number].result != result:
            raise BadBytesError(at, f"{what} needs a block that leaves a {result}")
        if not disturbed and any(self.slots[s].form == "disturbance" for s in self.read[number]):
            raise BadBytesError(at, f"{what} reads a disturbance")
        return number
