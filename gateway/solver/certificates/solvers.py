"""SMT solvers as programs of their own, on a script in a file: nothing of the running gateway is asked."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SolverName = Literal["z3", "cvc5"]
SOLVERS: tuple[SolverName, ...] = ("z3", "cvc5")
# z3 says so besides its answer where that is not the status the script states: the answer is what counts.
_OTHERWISE = re.compile(r'^\(error "line \d+ column \d+: check annotation that says \w+"\)$', re.MULTILINE)
_ANSWERS = frozenset({"sat", "unsat", "unknown"})
_STATUS = re.compile(r"^\(set-info :status (\w+)\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a solver said to each `check-sat`; `problem` where it could not be asked or complained."""

    solver: str
    said: tuple[str, ...] = ()
    problem: str = ""
    missing: bool = False  # it is not installed

    def confirms(self, expected: tuple[str, ...]) -> bool:
        """Whether every answer is the one the script expects. Unknown is not."""
        return not self.problem and bool(expected) and self.said == expected


def expected_answers(script: str) -> tuple[str, ...]:
    """The answers a script says its solver must give."""
    return tuple(_STATUS.findall(script))


def command_of(solver: SolverName) -> list[str]:
    """How to start a solver; empty where it is not installed.

    The z3 that came with this installation, else one on the path; cvc5 on the path, else PyPI's bindings.
    """
    beside = Path(sys.executable).parent / solver
    found = str(beside) if beside.is_file() else shutil.which(solver)
    if found is not None:
        return [found]
    if solver == "cvc5" and importlib.util.find_spec("cvc5") is not None:
        return [sys.executable, "-m", "gateway.solver.certificates.cvc5_program"]
    return []


def ask(solver: SolverName, script: str, *, within_s: float = 60.0) -> Answers:
    """Run a script; never raises for what the solver does. Blocks."""
    command = command_of(solver)
    if not command:
        advice = "pip install 'o3-gateway[verify]'" if solver == "cvc5" else "apt-get install z3"
        return Answers(solver=solver, problem=f"{solver} is not installed; {advice}", missing=True)
    with tempfile.TemporaryDirectory(prefix="o3-certificate-") as folder:
        file = Path(folder) / "decision.smt2"
        file.write_text(script, encoding="utf-8")
        try:
            done = subprocess.run(  # noqa: S603  # a solver found above and a file made here
                [*command, str(file)],
                capture_output=True,
                encoding="utf-8",
                errors="replace",  # what is no text is no answer
                timeout=within_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answers(solver=solver, problem=f"{solver} gave no answer within {within_s:g} s")
        except OSError as exc:
            return Answers(solver=solver, problem=f"{solver} cannot be started: {exc.strerror}")
    stdout, otherwise = _OTHERWISE.subn("", done.stdout)
    lines = stdout.split()
    if (done.returncode and not otherwise) or not set(lines) <= _ANSWERS:
        told = " ".join((done.stdout + done.stderr).split())[:300]
        return Answers(solver=solver, problem=f"{solver} complains: {told}")
    return Answers(solver=solver, said=tuple(lines))
