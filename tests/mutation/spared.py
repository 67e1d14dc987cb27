"""Mutants that no test can notice, since they change nothing that is said, each with the reason."""

from __future__ import annotations

_NEVER_LEFT_OUT = "every duty is made with all of its parts"
_THERE_ANYWAY = "both ends of the plan are cuts anyway"
_A_NAME = "any other word than `safe` and `terminal` means the same"
_A_BUDGET = "how long one query may take is tuned, not right or wrong"
_BELOW_0 = "any number below 0 is none"
_NEVER_FIRST = "the backup never acts in the first segment of a plan"
_NO_SYMBOL = "no symbol begins so"
_AS_MANY = "there are as many of the one as of the other"
_NO_CHANGE = "a change of nothing never comes so far"
_ONE_SIDE = "a value is rounded towards whatever lies on that side of it"
_A_SETTING = "Z3 gives the same answers with either setting, with one sooner"
_FOR_PEOPLE = "a name that people read in logs and task lists"
_ANY_OTHER = "only whether the count is another one is looked at"
_ALWAYS_TOLD = "something speaks against it before it is given up"
_NO_TIME = "a piece of no time changes nothing"
_FINENESS = "into how many pieces a time is cut is tuned: fewer are wider, never narrower"
_FOUND_HOLDS = "how long a bound is looked for is tuned: every one that is found holds"
_ANY_UNIT = "instants are compared in that unit with each other only"
_BEGUN_ANYWAY = "the windows begin anew at the first decision, whenever it is"
_KEPT_LONGER = "one prediction more is kept, and is never the one that is compared"
_A_HAIR = "a miss by one of a 24th decimal is how numbers are rounded"
_UNREAD = "nothing looks at it there"
_ONLY_COMPARED = "it is compared with what was made the same way, and not read"
_ROOM = "Z3 is told how many there are; room for one more is not looked at"

SPARED: dict[str, dict[str, str]] = {
    "solver/language/parse": {},
    "solver/checking/condense": {
        "drift: int = -1  # the instant itself [USub -> UAdd]": _NEVER_LEFT_OUT,
        "backup: int = -1  # none [USub -> UAdd]": _NEVER_LEFT_OUT,
        "drift: int = -1  # the instant itself [1 -> 2]": _NEVER_LEFT_OUT,
        "backup: int = -1  # none [1 -> 2]": _NEVER_LEFT_OUT,
        "def duty(self, index: int, rule: Rule, instant: int, *, old: bool = False, backup: int = -1) "
        "-> Duty: [1 -> 2]": _BELOW_0,
        'prefix = f"b{backup}" if backup >= 0 else "old" if old else "new" [GtE -> Gt]': _NEVER_FIRST,
        'prefix = f"b{backup}" if backup >= 0 else "old" if old else "new" [0 -> 1]': _NEVER_FIRST,
        'if name.startswith("for:") or (name[0] in "xpw" and name.partition(":")[2] in counts) '
        "['xpw' -> 'xpw~']": _NO_SYMBOL,
        "for index, (rule, key) in enumerate(zip(everything, names, strict=True)): [True -> False]": _AS_MANY,
        "if 0 < delay < end: [Lt -> LtE]": _THERE_ANYWAY,
        "while at < end: [Lt -> LtE]": _THERE_ANYWAY,
        "return \"rule\" ['rule' -> 'rule~']": _A_NAME,
    },
    "solver/checking/terms": {
        "rlimit: int = 2_000_000 [2000000 -> 2000001]": _A_BUDGET,
        "timeout_ms: int | None = 100 [100 -> 101]": _A_BUDGET,
        "def solver(context: z3.Context, budget: Budget, *, products: bool = False) -> z3.Solver: "
        "[False -> True]": _A_SETTING,
        "if not products: [not left out]": _A_SETTING,
        "if not products: [condition turned round]": _A_SETTING,
        'made.set("relevancy", 0) [0 -> 1]': _A_SETTING,
        "pair = (z3.Ast * 2)(self.number(factor).ast, term.ast) [2 -> 3]": _ROOM,
    },
    "solver/checking/restrain": {
        "step = least if wanted.value > old else -least [Gt -> GtE]": _NO_CHANGE,
        "found = toward(variable, old + step, old + 2 * step) [2 -> 3]": _ONE_SIDE,
    },
    "solver/checking/motion": {
        "_MOST_PIECES = 8  # of the time since the last check, by what was in force [8 -> 9]": _FINENESS,
        "moments = [seconds, *cuts[: _MOST_PIECES - 1], Fraction(0)] [Sub -> Add]": _FINENESS,
        "moments = [seconds, *cuts[: _MOST_PIECES - 1], Fraction(0)] [1 -> 2]": _FINENESS,
        "if seconds > TOLD_S: [Gt -> GtE]": _NO_TIME,
        "cuts = sorted({ago for told in ceased.values() for _, ago in told if 0 < ago < seconds}, "
        "reverse=True) [Lt -> LtE]": _NO_TIME,
    },
    "solver/monitor/readings": {
        "_MOST_PIECES = 8  # of the time between two decisions, by what was in force [8 -> 9]": _FINENESS,
        "moments = [seconds, *cuts[: _MOST_PIECES - 1], Fraction(0)] [Sub -> Add]": _FINENESS,
        "moments = [seconds, *cuts[: _MOST_PIECES - 1], Fraction(0)] [1 -> 2]": _FINENESS,
    },
    "solver/monitor/residuals": {
        "_MICROS = 1_000_000  # a second: what instants are whole numbers of [1000000 -> 1000001]": _ANY_UNIT,
        "self._heard_at = Fraction(-1)  # INVARIANT: `_pieces` reach from `_moment` to here "
        "[USub -> UAdd]": _BEGUN_ANYWAY,
        "self._heard_at = Fraction(-1)  # INVARIANT: `_pieces` reach from `_moment` to here "
        "[1 -> 2]": _BEGUN_ANYWAY,
        "if self._moment is not None and gap > 0: [Gt -> GtE]": _NO_TIME,
        "while len(self._predictions) > 1 and self._predictions[1].micros <= oldest: "
        "[LtE -> Lt]": _KEPT_LONGER,
        "while len(self._predictions) > 1 and self._predictions[1].micros <= oldest: [1 -> 2]": _KEPT_LONGER,
        "newest.append(outside > 0) [0 -> 1]": _A_HAIR,
    },
    "solver/rules/around": {
        "alone = RuleSet.of([module], 0) [0 -> 1]": _UNREAD,
    },
    "solver/rules/standing": {
        "found = {\"step\": str(rules.modules[0].step)} ['step' -> 'step~']": _ONLY_COMPARED,
        "form = \"\" if moves is None else form_text(moves) ['' -> '~']": _ONLY_COMPARED,
    },
    "solver/checking/together": {
        "_TRIES = 16  # to find a bound that holds itself up [16 -> 17]": _FOUND_HOLDS,
        "_CLOSER = 3 [3 -> 4]": _FOUND_HOLDS,
        "reach = dict.fromkeys(around, Fraction(0)) [0 -> 1]": _FOUND_HOLDS,
        "reach = {name: max(far, 2 * apart * found[name]) for name, far in reach.items()} "
        "[2 -> 3]": _FOUND_HOLDS,
    },
    "pipeline/writer": {
        "return None, \"\" ['' -> '~']": _UNREAD,
    },
    "pipeline/decide": {
        "LIST_COSTS = 4  # times the first answer: it is made once more, and up to seven others with it "
        "[4 -> 5]": _A_BUDGET,
    },
    "pipeline/repairs": {
        "self._kept[value.tag] = (1 if difference > 0 else -1, now) [Gt -> GtE]": _NO_CHANGE,
        "move = _Move(by > 0, corrected) [Gt -> GtE]": _NO_CHANGE,
    },
    "daemon/modes": {
        "self._left[name] += 1 [1 -> 2]": _ANY_OTHER,
    },
    "daemon/rearming": {
        "name, told = point.settings.id, \"\" ['' -> '~']": _ALWAYS_TOLD,
        'tasks.create_task(self._look_after(point), name=f"rearm-{point.settings.id}") '
        "['rearm-' -> 'rearm-~']": _FOR_PEOPLE,
    },
}
