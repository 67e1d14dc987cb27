"""The file of a compiled module: the same bytes everywhere, nothing lost, nothing forged."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.solver.bytecode.accept import accepted, compiled_file, whole
from gateway.solver.bytecode.assemble import assemble
from gateway.solver.bytecode.disassemble import listings, plain, words
from gateway.solver.bytecode.encode import encode, sealed
from gateway.solver.bytecode.load import load
from gateway.solver.bytecode.opcodes import FORMAT, MAGIC, MAX_RATIO, MAX_TEXT, Op
from gateway.solver.bytecode.program import Block, Instruction, Program, Slot
from gateway.solver.bytecode.signing import Trust
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.assumed_tags import assumed_tags
from gateway.solver.modules.compile import compile_module
from tests.unit.bytecode_modules import ALL, file, program, source_module
from tests.unit.solver_demo import BUFFER_TANK, ROOT, TAGS

# What a fixed source compiles to. Where this changes, `FORMAT` rises: files of the old one are
# refused with the words to compile again, and never taken for something else.
GOLDEN = {1: "193d02fcd5676f44"}


@pytest.mark.parametrize("name", ALL)
def test_every_shipped_module_comes_back_whole(name: str) -> None:
    found = load(file(name), "x.o3c")
    assert found.program == program(name)
    assert found.program.source.decode() == source_module(name).text
    assert found.program.cases == source_module(name).cases
    assert found.signature is None


@pytest.mark.parametrize("name", ALL)
def test_the_bytes_depend_on_the_source_alone_and_not_on_the_tags(name: str) -> None:
    module = source_module(name)
    data = module.text.encode()
    assumed = compile_module(data, "elsewhere.json", assumed_tags(data))
    assert sealed(encode(assemble(assumed), "elsewhere.json"), None) == file(name)


def test_another_process_with_another_hash_seed_gives_the_same_bytes() -> None:
    code = (
        "import hashlib; from tests.unit.bytecode_modules import ALL, file;"
        "print(hashlib.sha256(b''.join(map(file, ALL))).hexdigest())"
    )
    ours = hashlib.sha256(b"".join(map(file, ALL))).hexdigest()
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        said = subprocess.run(  # noqa: S603  # our own interpreter
            [sys.executable, "-c", code], capture_output=True, env=env, cwd=ROOT, check=True
        )
        assert said.stdout.decode().strip() == ours


def test_the_bytes_of_a_fixed_source_are_those_of_this_format() -> None:
    source = {
        "id": "m", "revision": 1, "language": 1, "step": "1 s",
        "variables": {
            "a": {"tag": "A", "type": "real", "range": ["0", "1"], "error": "0.1", "max_age": "1 s"},
            "on": {"tag": "B", "type": "bool", "role": "action", "min_on": "2 s"},
            "e": {"tag": "E", "type": "enum", "values": ["x", "y"], "role": "action"},
        },
        "constraints": [
            {"id": "r", "kind": "standard", "when": "on",
              "require": "min(a, 1/3) <= 0.5 and at_most(1, on, a > 1)"},
            {"id": "s", "kind": "informational", "require": "(a > 0.5 for 3 s) implies e in (x, y)"},
        ],
        "cases": [{"given": {"a": "0.2", "on": True, "e": "x"}, "expect": "permitted"}],
    }  # fmt: skip
    data = json.dumps(source).encode()
    found, _ = compiled_file(data, "m.json", assumed_tags(data), None)
    assert hashlib.sha256(found).hexdigest()[:16] == GOLDEN[FORMAT]


def refusal(data: bytes) -> str:
    with pytest.raises(ModuleRefusedError) as caught:
        load(data, "tank.o3c")
    (problem,) = caught.value.problems
    return problem.problem


def test_what_is_wrong_is_told_with_its_byte() -> None:
    good = file("buffer-tank")
    assert "at byte 0: the file does not begin as a compiled module does" in refusal(
        good.replace(b"\r\n", b"\n", 1)
    )
    other = bytearray(good)
    other[9] = 9
    assert "at byte 8: the format version is 9 and this gateway reads 1; compile the source again" in refusal(
        bytes(other)
    )
    other = bytearray(good)
    other[11] = 2
    assert "at byte 10: the language version is 2" in refusal(bytes(other))
    assert "at byte 12: the length of the module is" in refusal(good[:-40])
    other = bytearray(good)
    other[500] ^= 1
    assert f"at byte {len(good) - 33}: the checksum does not fit" in refusal(bytes(other))
    assert "1 bytes are left over at the end of the file" in refusal(good + b"x")
    assert refusal(b"").startswith("the compiled module is damaged or forged, at byte 0")


def crafted(code: tuple[Instruction, ...], **changes: object) -> str:
    """Why a file is refused whose only rule is this code."""
    base = program("lower-level-limit")
    block = Block(0, code, "truth", bytes(4 * len(code)))
    found: Program = replace(
        base, blocks=(block,), rules=(replace(base.rules[0], block=0),), dynamics=(), backup=(), safe_set=(),
        terminal=(), timers=(),
    )  # fmt: skip
    return refusal(sealed(encode(replace(found, **changes), "x.o3c"), None))  # type: ignore[arg-type]


TRUE = Instruction(Op.TRUE)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ((TRUE, Instruction(Op.NEGATE)), "NEGATE does not fit what is on the stack: truth"),
        ((Instruction(Op.AND),), "AND does not fit what is on the stack: nothing"),
        ((TRUE, TRUE), "the block does not leave one truth"),
        ((Instruction(Op.NUMBER, 0),), "the block does not leave one truth"),
        ((Instruction(Op.NUMBER, 9_999), Instruction(Op.NEGATE)), "there is no constant 9999"),
        ((Instruction(Op.TEST, 9_999),), "there is no slot 9999"),
        ((Instruction(Op.NUMBER, 0), Instruction(Op.CHAIN, 1)), "the operand of CHAIN is 1; it can be 2 to"),
        ((*[Instruction(Op.NUMBER, 0)] * 2, Instruction(Op.CHAIN, 2, b"\6")), "there is no comparison 6"),
        ((*[Instruction(Op.NUMBER, 0)] * 2, Instruction(Op.MEDIAN, 2)), "a median takes an odd number"),
        ((TRUE,) * 5_000, "more than 4096 values are on the stack"),
    ],
)
def test_code_that_could_do_harm_is_refused(code: tuple[Instruction, ...], sentence: str) -> None:
    assert sentence in crafted(code)


def test_what_refers_to_something_must_find_the_right_thing() -> None:
    base = program("lower-level-limit")
    at = Instruction(Op.TEST, 0)
    assert "a slot reads `held` of a variable that has none" in crafted((at,), slots=(Slot("held", 0, ""),))
    assert "a rule is block 5 of 1" in crafted((TRUE,), rules=(replace(base.rules[0], block=5),))
    assert "a step needs a block that leaves a number" in crafted((TRUE,), dynamics=(("level", 0),))
    assert "what moves is not a variable" in crafted((TRUE,), dynamics=(("nothing", 0),))
    assert "a disturbance has the name of a variable" in crafted(
        (TRUE,), disturbances=(("level", Fraction(0), Fraction(1)),)
    )
    assert "has its ends in the wrong order" in crafted(
        (TRUE,), disturbances=(("d", Fraction(1), Fraction(0)),)
    )
    assert "a case does not give a value for every variable" in crafted(
        (TRUE,), cases=(replace(base.cases[0], given={}),)
    )
    assert "an instruction comes from expression 0, not there" in crafted((TRUE,), origins=())
    assert "the step is not above 0" in crafted((TRUE,), step=Fraction(0))
    assert "the source is not the one whose digest the file states" in crafted((TRUE,), source=b"{}")


def test_a_module_beyond_the_format_is_refused_when_it_is_compiled() -> None:
    text = BUFFER_TANK.read_text().replace("tank would overflow", "x" * (MAX_TEXT + 1))
    with pytest.raises(ModuleRefusedError, match="the module is too large: a text of 65536 bytes"):
        compiled_file(text.encode(), "big.json", TAGS, None)
    text = BUFFER_TANK.read_text().replace('"revision": 7', f'"revision": {1 << 64}')
    with pytest.raises(ModuleRefusedError, match="does not fit 64 bits"):
        compiled_file(text.encode(), "big.json", TAGS, None)


def test_code_that_is_not_what_the_source_compiles_to_is_never_put_in_force() -> None:
    """Sound in itself, with a fitting checksum: only the compiler can tell."""
    base = program("buffer-tank")
    limit = base.constants.index(Fraction("3.6"))
    constants = tuple(Fraction("3.9") if i == limit else c for i, c in enumerate(base.constants))
    forged = sealed(encode(replace(base, constants=constants), "x.o3c"), None)
    assert load(forged, "x.o3c").program.constants[limit] == Fraction("3.9")
    with pytest.raises(ModuleRefusedError, match="is not what its own source compiles to"):
        accepted(forged, "tank.o3c", TAGS, Trust())
    assert accepted(file("buffer-tank"), "tank.o3c", TAGS, Trust()).id == "buffer-tank"


def test_the_embedded_source_is_judged_against_the_gateways_own_tags() -> None:
    with pytest.raises(ModuleRefusedError, match=r"unknown tag `TK1\.LT101`"):
        accepted(file("buffer-tank"), "tank.o3c", {}, Trust())


def test_a_partial_copy_of_a_compiled_module_is_not_whole() -> None:
    data = file("lower-level-limit")
    assert whole(data)
    assert not any(whole(data[:size]) for size in (0, 1, 4, 20, 48, len(data) // 2, len(data) - 1))
    assert whole(BUFFER_TANK.read_bytes())
    assert not whole(BUFFER_TANK.read_bytes()[:-5])
    assert data.startswith(MAGIC)


def test_a_listing_names_the_line_and_the_words_of_every_instruction() -> None:
    compiled = load(file("buffer-tank"), "x.o3c")
    text = list(words(compiled))
    assert "rule no-dry-run (critical, always)" in text
    lines = source_module("buffer-tank").text.splitlines()
    for listing in listings(compiled.program):
        for line in listing.lines:
            name = line.instruction.split()[-1]
            if line.instruction.startswith("load ") and name.isidentifier() and line.column > 1:
                assert lines[line.line - 1][line.column - 1 :].startswith(name)
    found = plain(compiled)
    assert found["source_sha256"] == source_module("buffer-tank").digest
    assert sum(len(block["lines"]) for block in found["blocks"]) == sum(
        len(block.code) for block in compiled.program.blocks
    )


_TIMED = next(name for name in ALL if program(name).timers)
_ENDLESS = Fraction(2 ** (8 * 2_000) + 1)  # Python makes no text of a number of more than 4 300 digits


# One file without a signature in the watched folder would end the gateway, and every start after it.
@pytest.mark.parametrize("seconds", [_ENDLESS, 1 / _ENDLESS])
@pytest.mark.parametrize("bound", [True, False])
def test_a_number_too_long_for_words_is_refused_also_where_no_bound_has_caught_it(
    seconds: Fraction, monkeypatch: pytest.MonkeyPatch, *, bound: bool
) -> None:
    given = program(_TIMED)
    forged = replace(given, timers=tuple(replace(timer, seconds=seconds) for timer in given.timers))
    with pytest.raises(ModuleRefusedError, match="too many digits"):
        encode(forged, "x.o3c")
    monkeypatch.setattr("gateway.solver.bytecode.encode.MAX_RATIO", 4_096)
    data = sealed(encode(forged, "x.o3c"), None)
    if not bound:
        monkeypatch.setattr("gateway.solver.bytecode.reading.MAX_RATIO", 4_096)
    with pytest.raises(ModuleRefusedError, match="damaged or forged"):
        load(data, "x.o3c")


def test_every_number_that_is_loaded_can_be_told() -> None:
    longest = 2 ** (8 * MAX_RATIO) - 1
    for value in (Fraction(longest), Fraction(1, longest), Fraction(1, 2 ** (8 * MAX_RATIO - 8))):
        given = program("buffer-tank")
        forged = replace(given, constants=(value, *given.constants[1:]))
        found = load(sealed(encode(forged, "x.o3c"), None), "x.o3c")
        assert found.program.constants[0] == value
        assert len("".join(words(found))) > len(str(plain(found)["constants"][0])) > 4_000


def test_no_text_of_a_file_moves_the_cursor_of_who_lists_it() -> None:
    given = program("buffer-tank")
    first = replace(given.variables[0], unit="\x1b[2K\r\u202em", tag="T\nrule none")
    found = load(
        sealed(encode(replace(given, variables=(first, *given.variables[1:])), "x.o3c"), None), "x.o3c"
    )
    lines = list(words(found))
    assert all(line.isprintable() for line in lines)
    assert r"T\nrule none, real, measured \x1b[2K\r\u202em" in "\n".join(lines)
