"""cvc5 on one script, in a process of its own: `python -m gateway.solver.certificates.cvc5_program FILE`.

PyPI has cvc5 as bindings without a program; this is the program.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import cvc5


def main(arguments: Sequence[str]) -> int:
    """Run every command of the script; prints what cvc5 prints."""
    solver = cvc5.Solver(cvc5.TermManager())
    symbols = cvc5.SymbolManager(solver.getTermManager())
    parser = cvc5.InputParser(solver, symbols)
    text = Path(arguments[0]).read_text(encoding="utf-8")
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, arguments[0])
    while not (command := parser.nextCommand()).isNull():
        if str(command).startswith("(set-info :status"):
            continue  # cvc5 breaks off where its answer is another; whoever asked wants to hear the answer
        sys.stdout.write(str(command.invoke(solver, symbols)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
