"""Errors by one of their causes, with the sentence that a person then reads.

Those of the links are in `tests/integration/test_link_error_texts.py`; many stand beside what raises them.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from asyncua import ua

from gateway.cli.live.asking import EXIT_NOT_RUNNING, EXIT_REFUSED, CommandError, ask, typed
from gateway.core.errors import ConstraintError
from gateway.inference.serving.costs import Costs, TooLateError
from gateway.link.messages import ModuleState
from gateway.plantsim.modbus_pdu import Code, ModbusRefusalError, Table
from gateway.plantsim.plc import SoftPlc
from gateway.plantsim.units import units_of
from gateway.protocols.opcua.access import ANONYMOUS
from gateway.protocols.opcua.methods import MethodRefusedError
from gateway.protocols.opcua.requests import Requests
from gateway.solver.analysis.courses import Course, UnboundedError
from gateway.solver.bytecode.reading import BadBytesError, Reader
from gateway.solver.checking.predict import UnusableError, observe
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language import units
from gateway.solver.language.affine import Affine
from gateway.solver.language.units import UnitError
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_demo import LEVEL, Situation, rule_set
from tests.unit.solver_small import small

NODE = ua.NodeId(ua.String("point"), ua.Int16(1))


def test_a_command_without_a_gateway_says_where_none_runs_and_what_to_do(tmp_path: Path) -> None:
    socket = tmp_path / "o3.sock"
    with pytest.raises(CommandError) as told:
        ask(socket, "status")

    assert str(told.value) == told.value.sentence
    assert told.value.sentence == (
        f"no gateway runs at {socket}: start it (systemctl start o3-gateway, or make run for the demo), "
        "or name its socket with --socket"
    )
    assert told.value.exit_status == EXIT_NOT_RUNNING


def test_an_answer_of_another_version_says_so_and_which_o3ctl_to_use() -> None:
    with pytest.raises(CommandError, match=r"another version's words \(.*\); use the o3ctl") as told:
        typed({"id": 7}, ModuleState)

    assert told.value.exit_status == EXIT_REFUSED


@pytest.mark.parametrize(
    ("offer", "values", "code", "said"),
    [
        ("mode", ["fast"], ua.StatusCodes.BadInvalidArgument, "`fast` is not a mode"),
        ("setpoints", ["", 0.0, ""], ua.StatusCodes.BadInvalidArgument, "no setpoints given"),
        ("setpoints", ["[1]", 0.0, ""], ua.StatusCodes.BadInvalidArgument, "give a JSON object"),
        ("setpoints", ["{", 0.0, ""], ua.StatusCodes.BadInvalidArgument, "not JSON: Expecting property name"),
        ("decision", ["", -1.0, ""], ua.StatusCodes.BadOutOfRange, "the deadline is out of range"),
        ("decision", ["", 0.0, "P7"], ua.StatusCodes.BadInvalidArgument, "`P7` is not a class"),
    ],
)
async def test_an_opc_ua_call_that_says_something_impossible_is_told_what(
    offer: str, values: list[Any], code: int, said: str
) -> None:
    method, _ = getattr(Requests(), offer)(NODE, "tank")
    with pytest.raises(MethodRefusedError) as told:
        await method.run(ANONYMOUS, values)

    assert str(told.value).startswith(said)
    assert (told.value.reason, told.value.code) == (str(told.value), code)


def test_a_request_to_a_model_that_would_be_late_says_what_is_left_and_what_it_takes() -> None:
    with pytest.raises(TooLateError, match=r"^30\.0 ms are left and an answer takes about 50\.0 ms$"):
        Costs(decision_ms=40.0, chunk_ms=5.0).admit(now=1.0, due=1.03, ahead_s=0.01, own_s=0.04)


def test_the_demo_plants_units_name_the_modbus_exception_they_answer_with() -> None:
    with pytest.raises(ModbusRefusalError, match=r"^ILLEGAL_ADDRESS$") as told:
        units_of(SoftPlc(seed=1))[1].read(Table.INPUT, 4_000, 1)

    assert told.value.code is Code.ILLEGAL_ADDRESS


def test_what_is_wrong_with_a_module_is_told_with_file_line_and_column_in_its_writers_words() -> None:
    with pytest.raises(ModuleRefusedError) as told:
        small("lq <= 3")
    (problem,) = told.value.problems

    assert isinstance(problem, ConstraintError)
    assert str(problem).startswith("constraint module `small.json`, line 1, column ")
    assert str(problem).endswith(": `lq` is not a variable of this module; did you mean `q`?, in `lq <= 3`")
    assert str(told.value) == str(problem)


def test_unlike_units_are_both_named_and_points_on_a_scale_are_no_amounts() -> None:
    with pytest.raises(UnitError, match=r"^`m` and `m3/h` are unlike units$"):
        units.joined(units.of("m"), units.of("m3/h"))
    with pytest.raises(UnitError, match=r"^two values in `degC` cannot be added: they are points on a scale"):
        units.added(units.of("degC"), units.of("degC"))
    with pytest.raises(UnitError, match=r"^a product of a temperature in degC has no meaning: write a diff"):
        units.multiplied(units.of("degC"))


def test_premises_nobody_can_stand_on_name_the_tag_and_what_is_wrong_with_it() -> None:
    rules = rule_set()
    with pytest.raises(UnusableError, match=rf"^`{LEVEL}` has no value$"):
        observe(rules, Situation().request(None, inputs={}))
    with pytest.raises(
        UnusableError, match=rf"^`{LEVEL}` \(5\.0395 to 5\.0605 m\) is not wholly inside its range"
    ):
        observe(rules, Situation(level=5.05).request(None))
    with pytest.raises(UnusableError, match=r"^no constraint module is in force, and an empty rule set"):
        observe(RuleSet.of([], 1), Situation().request(None))


def test_a_drift_that_nothing_bounds_is_named_with_what_would_bound_it() -> None:
    plant = small(
        "l <= 3",
        dynamics={"l": "l + 0.01*q - 0.01*p"},
        backup=[{"p": "ramp(100, 10)"}, {"h": False}, {"s": "idle"}],
    )
    form = Affine(Fraction(-3), {"L": Fraction(1)})
    course = Course(RuleSet.of([plant], 1), form, {})
    with pytest.raises(
        UnboundedError, match=r"^nothing says how far `q` may go: declare its `physical` limits$"
    ):
        course.bound(1)


def test_bytes_that_end_too_soon_are_told_with_their_place() -> None:
    with pytest.raises(BadBytesError) as told:
        Reader(b"abc", 1, 3).take(4, "the mark")

    assert str(told.value) == "the mark needs 4 bytes and 2 are left in its part of the file"
    assert (told.value.offset, told.value.problem) == (1, str(told.value))
