"""Module to program: every expression as straight-line code, every declaration, and where each stood."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from gateway.config.positions import Loc, Node, parse_json
from gateway.core.errors import ConstraintError
from gateway.solver.bytecode.opcodes import COMPARISONS, COUNTED, INDEXED, MAX_INDEX, Op, Type
from gateway.solver.bytecode.program import (
    BackupCode,
    Block,
    Declaration,
    Instruction,
    Origin,
    Program,
    RuleCode,
    Slot,
    SlotForm,
    Timer,
    slot_key,
)
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language.printing import printed
from gateway.solver.language.schema import LANGUAGE
from gateway.solver.language.syntax import (
    Call,
    Chain,
    Choice,
    Connective,
    Expr,
    For,
    Label,
    Member,
    Negative,
    Not,
    Number,
    Ref,
    Sum,
    Truth,
)
from gateway.solver.modules.module import Constraint, Module, Variable

_LOGIC: Mapping[str, Op] = {"and": Op.AND, "or": Op.OR, "implies": Op.IMPLIES, "iff": Op.IFF}
_ARITHMETIC: Mapping[str, Op] = {"+": Op.ADD, "-": Op.SUBTRACT, "*": Op.MULTIPLY, "/": Op.DIVIDE}
_CALLS: Mapping[str, Op] = {"min": Op.MIN, "max": Op.MAX, "sum": Op.SUM, "median": Op.MEDIAN}


def assemble(module: Module) -> Program:
    """The program of a compiled module: the same for the same source, whatever tags it was compiled with.

    Raises `ModuleRefusedError` for a module that is too large for the format.
    """
    return _Assembler(module).program()


def size_of(instruction: Instruction) -> int:
    """Bytes of one instruction."""
    return 1 + 2 * (instruction.op in INDEXED | COUNTED) + len(instruction.comparisons)


class _Assembler:
    """One module; pools grow in the order of first use."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._node = parse_json(module.text)
        self._constants: dict[Fraction, int] = {}
        self._slots: list[Slot] = []
        self._slot_numbers: dict[str, int] = {}
        self._origins: list[Origin] = []
        self._timers: dict[str, Timer | None] = {}
        self._blocks: list[Block] = []
        self._offset = 0
        self._variables = {name: index for index, name in enumerate(module.variables)}
        self._disturbances = {name: index for index, name in enumerate(sorted(module.disturbances))}

    def program(self) -> Program:
        module = self._module
        rules = self._rules()
        dynamics = tuple(
            (name, self._number(tree, self._origin(("dynamics", name))))
            for name, tree in module.dynamics.items()
        )
        backup = self._backup()
        safe_set = self._set("safe_set", module.safe_set)
        terminal = self._set("terminal", module.terminal)
        return Program(
            language=LANGUAGE,
            digest=module.digest,
            id=module.id,
            revision=module.revision,
            priority=module.priority,
            horizon=module.horizon,
            step=module.step,
            variables=tuple(self._declaration(v) for v in module.variables.values()),
            disturbances=tuple((name, *module.disturbances[name]) for name in self._disturbances),
            constants=tuple(self._constants),
            slots=tuple(self._slots),
            blocks=tuple(self._blocks),
            origins=tuple(self._origins),
            timers=tuple(timer for timer in self._timers.values() if timer is not None),
            rules=rules,
            dynamics=dynamics,
            backup=backup,
            safe_set=safe_set,
            terminal=terminal,
            cases=module.cases,
            source=module.text.encode(),
        )

    def _declaration(self, v: Variable) -> Declaration:
        taken = self._node.get(("variables", v.name)).value
        from_tag = v.sort == "int" and not v.action and isinstance(taken, Mapping) and "range" not in taken
        return Declaration(
            name=v.name,
            tag=v.tag,
            sort=v.sort,
            unit=v.unit,
            action=v.action,
            repair=v.name in self._module.repair,
            hidden=v.hidden,
            range=None if from_tag else v.range,
            error=v.error,
            error_reason=v.error_reason,
            max_age=v.max_age,
            max_rate=v.max_rate,
            physical=v.physical,
            min_on=v.min_on,
            min_off=v.min_off,
            accept_quality=tuple(sorted(v.accept_quality)),
            labels=None if v.labels is None else tuple(v.labels.items()),
        )

    def _rules(self) -> tuple[RuleCode, ...]:
        written = self._node.get(("constraints",)).value
        count = len(written) if isinstance(written, tuple) else 0
        return tuple(self._rule(r, i if i < count else None) for i, r in enumerate(self._module.rules))

    def _rule(self, rule: Constraint, index: int | None) -> RuleCode:
        """A rule; `index` in `constraints`, None for what a declaration demands."""
        draft = _Draft(self, "truth")
        if index is None:
            require = when = self._declared_at(rule)
        else:
            when = self._origin(("constraints", index, "when")) if rule.when is not None else 0
            require = self._origin(("constraints", index, "require"))
        if rule.when is not None:
            draft.add(rule.when, "truth", when)
        draft.add(rule.require, "truth", require)
        if rule.when is not None:
            draft.put(Instruction(Op.IMPLIES), require, rule.require.at)
        return RuleCode(
            id=rule.id,
            kind=rule.kind,
            always=rule.always,
            monitor=rule.monitor,
            message=rule.message,
            row=rule.row,
            block=self._finish(draft),
        )

    def _backup(self) -> tuple[BackupCode, ...]:
        found: list[BackupCode] = []
        for index, entry in enumerate(self._module.backup):
            guard = None
            if entry.when is not None:
                draft = _Draft(self, "truth")
                draft.add(entry.when, "truth", self._origin(("backup", index, "when")))
                guard = self._finish(draft)
            found.append(BackupCode(guard, tuple(entry.moves.items())))
        return tuple(found)

    def _set(self, key: str, rules: tuple[Constraint, ...]) -> tuple[int, ...]:
        found: list[int] = []
        for index, rule in enumerate(rules):
            draft = _Draft(self, "truth")
            draft.add(rule.require, "truth", self._origin((key, index)))
            found.append(self._finish(draft))
        return tuple(found)

    def _number(self, tree: Expr, origin: int) -> int:
        draft = _Draft(self, "number")
        draft.add(tree, "number", origin)
        return self._finish(draft)

    def _finish(self, draft: _Draft) -> int:
        """A draft as a block; its number."""
        size = sum(map(size_of, draft.code))
        self._blocks.append(Block(self._offset, tuple(draft.code), draft.result, bytes(draft.places)))
        self._offset += size
        return len(self._blocks) - 1

    def _origin(self, loc: Loc) -> int:
        node: Node = self._node.get(loc)
        return self._note_origin(Origin(node.line, node.column + 1, str(node.value)), node.line)

    def _declared_at(self, rule: Constraint) -> int:
        return self._note_origin(Origin(rule.line, 1, printed(rule.require)), rule.line)

    def _note_origin(self, origin: Origin, line: int) -> int:
        if self._origins and self._origins[-1] == origin:
            return len(self._origins) - 1
        self._origins.append(origin)
        return self._within(len(self._origins) - 1, "expressions", line)

    def constant(self, value: Fraction) -> int:
        """The index of a constant."""
        return self._within(self._constants.setdefault(value, len(self._constants)), "numbers", 1)

    def slot(self, node: Ref | For, origin: int) -> int:
        """The index of what a reference or a `for` reads."""
        if node.key not in self._slot_numbers:
            found = self._timed(node, origin) if isinstance(node, For) else self._read(node)
            self._slot_numbers[node.key] = len(self._slots)
            self._slots.append(found)
        return self._within(self._slot_numbers[node.key], "values to read", 1)

    def _read(self, node: Ref) -> Slot:
        form: SlotForm = node.form
        if node.name in self._disturbances and node.name not in self._variables:
            return Slot("disturbance", self._disturbances[node.name], node.key)
        return Slot(form, self._variables[node.name], node.key)

    def _timed(self, node: For, origin: int) -> Slot:
        """A `for`: its condition is a block of its own."""
        index = len(self._timers)
        self._timers[node.key] = None  # its place
        draft = _Draft(self, "truth")
        draft.add(node.operand, "truth", origin)
        self._timers[node.key] = Timer(node.seconds, node.row, self._finish(draft))
        return Slot("timer", index, slot_key("timer", node.row, node.seconds))

    def _within(self, index: int, what: str, line: int) -> int:
        if index <= MAX_INDEX:
            return index
        problem = f"the module has more than {MAX_INDEX} different {what}; split it into several modules"
        raise ModuleRefusedError((ConstraintError(self._module.source, line, 1, problem),))


class _Draft:
    """A block that is being written."""

    def __init__(self, pools: _Assembler, result: Type) -> None:
        self._pools = pools
        self.result: Type = result
        self.code: list[Instruction] = []
        self.places = bytearray()

    def put(self, instruction: Instruction, origin: int, at: int) -> None:
        """Add an instruction and where it comes from."""
        self.code.append(instruction)
        self.places += origin.to_bytes(2) + at.to_bytes(2)

    def add(self, tree: Expr, want: Type, origin: int) -> None:
        """Add what leaves the value of `tree` on the stack; without recursion, for long sums are deep."""
        waiting: list[tuple[Expr, Type, bool]] = [(tree, want, False)]
        while waiting:
            node, wanted, parts_done = waiting.pop()
            if parts_done:
                self.put(self._last(node, wanted, origin), origin, node.at)
            else:
                waiting.append((node, wanted, True))
                waiting += [(part, sort, False) for part, sort in reversed(_parts(node, wanted))]

    def _last(self, node: Expr, want: Type, origin: int) -> Instruction:  # noqa: C901, PLR0911, PLR0912
        match node:
            case Number(_, value) | Label(_, _, value):
                return Instruction(Op.NUMBER, self._pools.constant(value))
            case Truth(_, value):
                return Instruction(Op.TRUE if value else Op.FALSE)
            case Ref() | For():
                return Instruction(Op.LOAD if want == "number" else Op.TEST, self._pools.slot(node, origin))
            case Not():
                return Instruction(Op.NOT)
            case Negative():
                return Instruction(Op.NEGATE)
            case Sum(_, op):
                return Instruction(_ARITHMETIC[op])
            case Connective(_, op):
                return Instruction(_LOGIC[op])
            case Chain(_, ops, operands):
                return Instruction(Op.CHAIN, len(operands), bytes(map(COMPARISONS.index, ops)))
            case Member(_, _, values):
                return Instruction(Op.MEMBER, len(values))
            case Choice():
                return Instruction(Op.CHOOSE_NUMBER if want == "number" else Op.CHOOSE_TRUTH)
            case Call(_, "abs"):
                return Instruction(Op.ABS)
            case Call(_, "count", arguments):
                return Instruction(Op.COUNT, len(arguments))
            case Call(_, "at_most" | "exactly" as function, arguments):
                return Instruction(Op.AT_MOST if function == "at_most" else Op.EXACTLY, len(arguments) - 1)
            case Call(_, function, arguments):
                return Instruction(_CALLS[function], len(arguments))


def _parts(  # noqa: C901, PLR0911  one return for each kind of node
    node: Expr, want: Type
) -> list[tuple[Expr, Type]]:
    """What is put on the stack before the instruction of `node`, and as what."""
    match node:
        case Number() | Label() | Truth() | Ref() | For():
            return []
        case Not(_, operand):
            return [(operand, "truth")]
        case Negative(_, operand):
            return [(operand, "number")]
        case Sum(_, _, left, right):
            return [(left, "number"), (right, "number")]
        case Connective(_, _, left, right):
            return [(left, "truth"), (right, "truth")]
        case Chain(_, _, operands):
            return [(part, "number") for part in operands]
        case Member(_, operand, values):
            return [(operand, "number"), *((part, "number") for part in values)]
        case Choice(_, condition, first, second):
            return [(condition, "truth"), (first, want), (second, want)]
        case Call(_, "count", arguments):
            return [(part, "truth") for part in arguments]
        case Call(_, "at_most" | "exactly", (wanted, *conditions)):
            return [(wanted, "number"), *((part, "truth") for part in conditions)]
        case Call(_, _, arguments):
            return [(part, "number") for part in arguments]
