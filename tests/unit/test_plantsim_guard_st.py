"""The Structured Text a PLC engineer gets does what the soft PLC does: both are run side by side.

The translator below knows only the statements `O3_Guard.st` uses, and fails on any other.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plantsim.plc import Panel, Reject, SoftPlc, block_checksum
from gateway.plantsim.tank import TankState

SOURCE = Path(__file__).parents[2] / "packaging" / "plc" / "O3_Guard.st"
_WORDS = {"AND": "&", "OR": "|", "XOR": "^", "NOT": "not", "TRUE": "True", "FALSE": "False"}
_DEFAULTS = {"BOOL": False, "REAL": 0.0}
_CASTS = ("UINT_TO_WORD", "WORD_TO_UINT", "BOOL_TO_UINT", "UINT_TO_UDINT")


def expression(text: str) -> str:
    """IEC operators as Python's, which bind otherwise: the source brackets every operand."""
    text = re.sub(r"16#([0-9A-F]+)", r"0x\1", text)
    text = text.replace(":=", "\0").replace("<>", "!=")
    text = re.sub(r"(?<![<>!=])=(?!=)", "==", text).replace("\0", "=")
    return re.sub(r"\b[A-Z]+\b", lambda match: _WORDS.get(match[0], match[0]), text)


def translated(body: str) -> CodeType:
    lines, depth = [], 0
    for statement in statements(body):
        if statement in {"END_IF", "END_FOR"}:
            depth -= 1
            continue
        if loop := re.fullmatch(r"FOR (\w+) := (.+) TO (.+) DO", statement):
            line, opens = f"for {loop[1]} in range({loop[2]}, {loop[3]} + 1):", True
        elif branch := re.fullmatch(r"(IF|ELSIF) (.+) THEN", statement):
            depth -= branch[1] == "ELSIF"
            line, opens = f"{'if' if branch[1] == 'IF' else 'elif'} {expression(branch[2])}:", True
        elif statement == "ELSE":
            depth -= 1
            line, opens = "else:", True
        else:
            assignment = re.fullmatch(r"([\w\[\]]+) := (.+)", statement)
            assert assignment is not None, statement
            line, opens = f"{assignment[1]} = {expression(assignment[2])}", False
        lines.append("    " * depth + line)
        depth += opens
    assert depth == 0
    return compile("\n".join(lines), str(SOURCE), "exec")


def statements(body: str) -> list[str]:
    kinds = r"(?:IF|ELSIF)\b.+?\bTHEN\b|FOR\b.+?\bDO\b|ELSE\b|END_IF|END_FOR|[^;\s][^;]*"
    return [" ".join(part.split()) for part in re.findall(rf"\s*({kinds})", body, re.DOTALL)]


def declared(text: str) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, kind, start in re.findall(r"(\w+) : ([^;:]+?)(?: := ([^;]+))?;", text):
        array = re.fullmatch(r"ARRAY\[0\.\.(\d+)\] OF UINT", kind)
        if array:
            values[name] = [0] * (int(array[1]) + 1)
        else:
            values[name] = (
                eval(expression(start)) if start else _DEFAULTS.get(kind, 0)  # noqa: S307  # our own file
            )
    return values


class Program:
    """One POU of the source, with its variables in `memory`."""

    def __init__(self, name: str, functions: dict[str, Callable[..., int]]) -> None:
        source = re.sub(r"\(\*.*?\*\)", "", SOURCE.read_text(), flags=re.DOTALL)
        found = re.search(rf"(FUNCTION|FUNCTION_BLOCK) {name}\b.*?\n(.*?)END_\1\b", source, re.DOTALL)
        assert found is not None
        head, _, body = found[2].rpartition("END_VAR")
        self.memory = declared(head)
        self._code = translated(body)
        self._library: dict[str, object] = {
            **functions,
            **dict.fromkeys(_CASTS, int),
            **dict.fromkeys(("UINT_TO_REAL", "UDINT_TO_REAL"), float),
            "MIN": min,
            "MAX": max,
            "ABS": abs,
            "REAL_TO_UINT": round,
            "SHR": lambda word, count: word >> count,
        }

    def run(self, **inputs: object) -> dict[str, object]:
        assert inputs.keys() <= self.memory.keys()
        self.memory.update(inputs)
        exec(self._code, self._library, self.memory)  # noqa: S102  # our own file
        return self.memory


CRC = Program("O3_Crc16", {})


def crc(**inputs: object) -> int:
    result = CRC.run(**inputs)["O3_Crc16"]
    assert isinstance(result, int)
    return result


GUARD = Program("O3_Guard", {"O3_Crc16": crc})


@given(st.lists(st.integers(0, 0xFFFF), min_size=8, max_size=8))
def test_both_checksums_agree(words: list[int]) -> None:
    assert crc(Words=[*words, 0]) == block_checksum(words)


ODDITIES: list[dict[str, int]] = [
    {},
    *({"advance": 0}, {"advance": -1}, {"advance": -9}, {"advance": 32767}, {"advance": 32768}),
    *({"owner": 2}, {"epoch": 2}, {"valid": 0}, {"valid": 2}, {"spoil": 1}),
    *({"pump": 1001}, {"pump": 0}, {"heater": 2}, {"mixer": 4}),
]


@st.composite
def writes(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """A block that follows the last accepted one, every second one with one thing odd about it."""
    fields = {"advance": 1, "owner": 1, "epoch": 1, "lease": draw(st.integers(0, 2)), "valid": 1}
    fields |= {"pump": draw(st.sampled_from([300, 420, 600])), "heater": 1, "mixer": draw(st.integers(1, 3))}
    odd = draw(st.sampled_from(ODDITIES)) if draw(st.booleans()) else {}
    return "write", {**fields, "spoil": 0, **odd}


EVENTS = st.one_of(
    writes(),
    writes(),
    writes(),
    st.tuples(st.just("wait"), st.sampled_from([20, 100, 480, 700, 1500, 3000])),
    st.tuples(st.just("remote"), st.sampled_from([0, 1, 1, 1])),
    st.tuples(st.just("valid"), st.sampled_from([0, 1])),
    st.tuples(st.just("level"), st.sampled_from([500, 1990, 2010, 3500])),
    st.tuples(st.just("epoch"), st.sampled_from([1, 1, 1, 2])),
)
Event = tuple[str, int] | tuple[str, dict[str, int]]


def apply(plc: SoftPlc, event: Event) -> int:
    """Do what the event says; gives the milliseconds until the next scan."""
    match event:
        case ("write", dict() as fields):
            advance, *words, spoil = fields.values()
            words.insert(0, (plc.inputs[2] + advance) & 0xFFFF)
            plc.block[:] = [*words, block_checksum(words) ^ spoil]
        case ("wait", int(wait_ms)):
            return wait_ms
        case ("remote", int(switch)):
            plc.panel[Panel.REMOTE] = switch
        case ("valid", int(word)):
            plc.block[4] = word
        case ("level", int(level_mm)):
            plc.panel[Panel.PRESET_LEVEL_MM] = level_mm
        case ("epoch", int(granted)):
            plc.panel[Panel.EPOCH] = granted
        case _:
            pytest.fail(f"no such event {event}")
    return 20


@settings(max_examples=300, deadline=None)
@given(events=st.lists(EVENTS, min_size=10, max_size=40), step_max=st.sampled_from([1000, 200]))
def test_the_structured_text_and_the_soft_plc_answer_alike(events: list[Event], step_max: int) -> None:
    plc = SoftPlc(seed=2, start=TankState(2.2, 40.0), pump_step_max_raw=step_max)
    plc.panel[Panel.LEASE_MS] = (
        3010  # no sum of waits: the two keep time as float seconds and as milliseconds
    )
    guard = copy.copy(GUARD)
    guard.memory = copy.deepcopy(GUARD.memory)
    now_ms, wait_ms = 1_000_000, 0
    first = plc.working
    for event in (("wait", 0), *events):
        wait_ms = apply(plc, event)
        now_ms += wait_ms
        scan = plc.scan(now_ms / 1000)
        memory = guard.run(
            Block=list(plc.block),
            Remote=plc.panel[Panel.REMOTE] == 1,
            GrantedOwner=plc.panel[Panel.OWNER],
            GrantedEpoch=plc.panel[Panel.EPOCH],
            LeaseTimeout_ms=plc.panel[Panel.LEASE_MS],
            Cycle_ms=wait_ms,
            Level_m=scan.measured.level_m,
            TrackPump_pct=first.pump_pct,
            TrackHeater=first.heater,
            TrackMixer=first.mixer,
            PumpStepMax=step_max,
        )
        answer = memory["Answer"]
        assert isinstance(answer, list)
        assert [*answer[:4], *answer[5:7]] == [*plc.inputs[:4], *plc.inputs[5:7]]
        assert abs(answer[4] - plc.inputs[4]) <= 1  # sums of floats of another order
        assert answer[11:] == plc.inputs[11:]


def test_the_text_names_every_register_and_reject_code() -> None:
    text = SOURCE.read_text()
    for code in Reject:
        assert re.search(rf"\b{code.value} {code.name.lower().replace('_', '.')[:5]}", text), code
    for address in range(100, 109):
        assert re.search(rf"^ +{address}  \w", text, re.MULTILINE), address
