"""Damaged and hostile compiled modules: one sentence each, never another error, never much time or memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.solver.bytecode.encode import Section, encode, sealed
from gateway.solver.bytecode.load import load
from gateway.solver.bytecode.opcodes import MAGIC, MAX_ITEMS, Op
from gateway.solver.bytecode.program import Block, Compiled, Instruction, Program
from gateway.solver.bytecode.run import run
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.module import Case
from tests.fuzz.mutator_o3c import CORPUS, KEPT, mutated, sealed_again, sections
from tests.unit.bytecode_modules import file, program
from tests.unit.solver_demo import ROOT

_TIMES = 8  # as much time as sound files take, for each file or byte of one
_MEMORY = 64 * 1024 * 1024


def outcome(data: bytes) -> Compiled | str:
    """What the loader makes of bytes: a module, or one sentence that names a byte."""
    try:
        return load(data, "x.o3c")
    except ModuleRefusedError as exc:
        (problem,) = exc.problems
        assert "at byte " in problem.problem
        assert problem.source == "x.o3c"
        return problem.problem


def sound_s() -> tuple[float, float]:
    """Seconds of the processor that a shipped module takes, and each of its bytes: this machine's measure."""
    data, rounds = file("buffer-tank"), 50
    begin = time.process_time()
    for _ in range(rounds):
        load(data, "x.o3c")
    took = (time.process_time() - begin) / rounds
    return took, took / len(data)


def runs(found: Program) -> None:
    """Whatever was accepted runs through."""
    point = {slot.key: Fraction(0) for slot in found.slots}
    for block in found.blocks:
        run(found, block, point)


def test_twenty_thousand_mutants_are_refused_in_words_or_harmless() -> None:
    sentences: Counter[str] = Counter()
    mutants, (sound, _) = 20_000, sound_s()
    taken, begin = 0, time.process_time()
    for seed in range(mutants):
        found = outcome(mutated(seed))
        if isinstance(found, Compiled):
            taken += 1
            runs(found.program)
        else:
            sentences["".join(c for c in found.partition(": ")[2] if not c.isdigit())] += 1
    assert time.process_time() - begin < _TIMES * mutants * sound
    assert len(sentences) > 60  # mutants reach all parts of the loader
    assert 0 < taken < 10_000


def test_the_mutator_repeats_itself_and_the_saved_corpus_is_answered() -> None:
    assert [mutated(seed) for seed in range(20)] == [mutated(seed) for seed in range(20)]
    files = sorted(CORPUS.iterdir())
    assert len(files) >= KEPT
    for path in files:
        found = outcome(path.read_bytes())
        if isinstance(found, Compiled):
            runs(found.program)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_bytes_from_nowhere_are_refused(data: bytes, marked: bool) -> None:  # noqa: FBT001  # hypothesis calls it
    assert isinstance(outcome(MAGIC + data if marked else data), str)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([s for s in Section if s is not Section.SOURCE]), st.binary(max_size=200))
def test_a_section_from_nowhere_in_a_sound_file_is_refused_or_harmless(section: Section, data: bytes) -> None:
    parts = list(sections("lower-level-limit"))
    parts[section - 1] = data
    found = outcome(sealed_again("lower-level-limit", parts))
    if isinstance(found, Compiled):
        runs(found.program)


@pytest.mark.parametrize("name", ["buffer-tank", "level-crossing"])
def test_every_truncation_is_refused(name: str) -> None:
    data = file(name)
    for size in range(0, len(data), 7):
        assert isinstance(outcome(data[:size]), str)
    assert isinstance(outcome(data + b"\0"), str)


def _items(case: Case) -> int:
    lists = (case.given, case.previous, case.held_s, case.age_s, case.bad, case.violated)
    return 1 + sum(map(len, lists))


def large(constants: int, blocks: int) -> Program:
    """As many instructions, different constants and texts as a file may have."""
    base = program("lower-level-limit")
    wide = 4_000
    numbers = tuple(Fraction(n, 7) if n % 7 else Fraction(-n) for n in range(1, constants + 1))
    found: list[Block] = []
    start = 0
    for b in range(blocks):
        pushes = [Instruction(Op.NUMBER, (b * wide + i) % constants) for i in range(wide)]
        code = (
            *pushes,
            Instruction(Op.MIN, wide),
            Instruction(Op.NUMBER, 0),
            Instruction(Op.CHAIN, 2, b"\0"),
        )
        found.append(Block(start, code, "truth", bytes(4 * len(code))))
        start += 3 * (len(code) - 1) + 4
    rules = tuple(replace(base.rules[0], id=f"rule-{i}", block=i % blocks) for i in range(20_000))
    return replace(
        base,
        constants=numbers,
        blocks=tuple(found),
        rules=rules,
        dynamics=(),
        backup=(),
        safe_set=(),
        terminal=(),
        timers=(),
        slots=(),
        cases=base.cases * ((MAX_ITEMS - 61_000) // sum(map(_items, base.cases))),
    )


def test_the_largest_file_takes_bounded_memory_and_time(tmp_path: Path) -> None:
    path = tmp_path / "large.o3c"
    path.write_bytes(sealed(encode(large(20_000, 49), "x.o3c"), None))
    size, (_, each) = path.stat().st_size, sound_s()
    assert size > 3_000_000
    code = (
        "import resource, sys, time; from gateway.solver.bytecode.load import load;"
        "data = open(sys.argv[1], 'rb').read();"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "before, begin = used(), time.process_time();"
        "found = load(data, 'x');"
        "print(used() - before, time.process_time() - begin, len(found.program.rules))"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", code, path], capture_output=True, cwd=ROOT, check=True
    )
    kib, seconds, rules = map(float, done.stdout.split())
    assert rules == 20_000
    assert kib * 1024 < _MEMORY
    assert seconds < _TIMES * size * each


def test_numbers_that_would_grow_beyond_use_are_refused_before_they_are_worked_with() -> None:
    base = large(8, 1)
    huge = Fraction(3**9_000)
    code = (
        *(Instruction(Op.NUMBER, 0) for _ in range(60)),
        *(Instruction(Op.MULTIPLY) for _ in range(59)),
        Instruction(Op.NUMBER, 1),
        Instruction(Op.CHAIN, 2, b"\0"),
    )
    block = Block(0, code, "truth", bytes(4 * len(code)))
    grown = replace(base, constants=(huge, Fraction(1)), blocks=(block,), rules=base.rules[:1])
    assert "grow beyond any use" in str(outcome(sealed(encode(grown, "x.o3c"), None)))
