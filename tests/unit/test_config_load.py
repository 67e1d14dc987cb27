import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from gateway.config.lease import lease_sum
from gateway.config.load import load
from gateway.config.model import GatewayConfig
from gateway.config.tags import parse_csv, tag_definitions
from gateway.core.errors import ConfigError
from gateway.core.tag import TagId, TagKind
from gateway.daemon.points import point_settings
from gateway.pipeline.repairs import RepairLimit

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "packaging" / "demo"

Edit = Callable[[str, str], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("gateway.toml", "tk1.csv", "binding.csv"):
        shutil.copy(DEMO / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def edit(folder: Path) -> Edit:
    def replace(old: str, new: str) -> None:
        for name in ("gateway.toml", "tk1.csv"):
            path = folder / name
            text = path.read_text()
            if old in text:
                path.write_text(text.replace(old, new, 1))
                return
        raise AssertionError(old)

    return replace


def problems(folder: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(folder / "gateway.toml")
    return tuple(p.removeprefix(f"{folder}/") for p in caught.value.problems)


@pytest.mark.parametrize("path", ["packaging/demo/gateway.toml", "docs/examples/gateway.toml"])
def test_shipped_configurations_load(path: str) -> None:
    config = load(ROOT / path)
    assert config.decision_point[0].deadline == pytest.approx(0.1)


def test_tags_carry_exact_scales_and_ranges(folder: Path) -> None:
    tags = {d.id: d for d in tag_definitions(load(folder / "gateway.toml"))}

    pump = tags[TagId("TK1.P101.SP")]
    assert (pump.kind, pump.scale, pump.raw_range) == (TagKind.REAL, Fraction(1, 10), (0, 65535))
    assert pump.writable
    assert tags[TagId("TK1.H101.CMD")].kind is TagKind.BOOLEAN
    assert tags[TagId("TK1.M101.STAGE")].kind is TagKind.INTEGER
    assert tags[TagId("TK1.LT101")].eu_range == (Fraction(-1, 10), Fraction(5))


def test_everything_wrong_is_said_at_once_with_file_line_and_column(folder: Path, edit: Edit) -> None:
    edit('trigger = { period = "1 s"', 'trigger = { peroid = "1 s"')
    edit('deadline = "100 ms"', "deadline = 100")
    edit("unit_id = 1", 'unit_id = "1"')
    edit("TK1.LT101,input,7", "TK1.LT101,imput,7")

    found = problems(folder)

    assert len(found) == 4
    assert any(p.endswith("unknown key `peroid`; did you mean `period`?") for p in found)
    assert any("`100` is not a duration" in p for p in found)
    assert "tk1.csv:7:11" in found[-1]
    line = 1 + (folder / "gateway.toml").read_text().split("peroid")[0].count("\n")
    assert any(p.startswith(f"gateway.toml:{line}:13:") for p in found)


def test_what_is_wrong_between_tables_is_said_even_where_a_key_is_wrong(folder: Path, edit: Edit) -> None:
    edit('trigger = { period = "1 s"', 'trigger = { peroid = "1 s"')
    edit('id = "demo"', "id = 3")  # the whole gateway section is of no use
    edit('inputs = ["TK1.LT101"', 'inputs = ["TK1.LT110"')
    edit("fast,yes,,Pump", "fast,,,Pump")

    found = problems(folder)

    assert any("unknown key `peroid`" in p for p in found)
    assert any("unknown tag `TK1.LT110`; did you mean `TK1.LT101`?" in p for p in found)
    assert any("`TK1.P101.SP` is not writable" in p for p in found)
    assert len(found) == 4, found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TK1.LT101,input,7", "TK1.LT101,imput,7"),  # named as input of the point
        ("TK1.FLAGS,input,10", "TK1.FLAGS,input,x"),  # named as flag of others
        ('interval = "100 ms"', "interval = 100"),  # its group is named by every tag
        ("unit_id = 1", 'unit_id = "1"'),  # its device holds every tag
        ('deadline = "100 ms"', "deadline = 100"),
        ("lease = ", "laese = "),
        ("accepted_address = 2", 'accepted_address = "2"'),
        ('outputs = ["TK1.P101.SP", "TK1.H101.CMD", "TK1.M101.STAGE"]\nread', "outputs = []\nread"),
        ('endpoint = "127.0.0.1:15020"', 'endpoint = "127.0.0.1"'),
    ],
)
def test_one_mistake_is_one_problem_and_nothing_follows_from_it(
    folder: Path, edit: Edit, old: str, new: str
) -> None:
    edit(old, new)
    assert len(problems(folder)) == 1, problems(folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'inputs = ["TK1.LT101"',
            'inputs = ["TK1.LT110"',
            "unknown tag `TK1.LT110`; did you mean `TK1.LT101`?",
        ),
        ('host = "127.0.0.1"', 'host = "0.0.0.0"', "until the OPC UA session and trust holes are closed"),
        ('deadline = "100 ms"', 'deadline = "1 s"', "is not shorter than the period"),
        ("fast,yes,,Pump", "fast,,,Pump", "`TK1.P101.SP` is not writable"),
        ("fast,yes,,Pump", "fast,,yes,Pump", "`TK1.P101.SP` is protected"),
        ("fast,yes,,Pump", "fast,yes,yes,Pump", "a protected tag cannot be writable"),
        ("holding,106", "holding,116", "its place in the block is holding 106"),
        ('outputs = ["TK1.P101.SP", ', "outputs = [", "`TK1.H101.CMD` is at holding 106"),
        ('mode = "shadow"', 'mode = "armed"\nrequired_modules = []', "cannot overwrite"),
        ("fast,,,Inflow", "fats,,,Inflow", "unknown poll group `fats`; did you mean `fast`?"),
        ("TK1.FLAGS,1", "TK1.FLAG,1", "unknown tag `TK1.FLAG`; did you mean `TK1.FLAGS`?"),
        ("m,0.001,0,-0.1,5", "m,0.001,0,5,-0.1", "eu_low 5 is not below eu_high -0.1"),
        ("m,0.001", "m,0", "the scale must be a number other than 0"),
        ("TK1.FT101,input,8", "TK1.LT101,input,8", "tag `TK1.LT101` exists already"),
        ('tags_csv = "tk1.csv"', 'tags_csv = "tk2.csv"', "cannot be read"),
        ('"TK1.P101.SP" = "TK1.P101.PV", ', "", "no read-back tag for output `TK1.P101.SP`"),
        ('fallback = ["backup"', 'fallback = ["value"', "needs fallback_values for `TK1.P101.SP`"),
        ('endpoint = "127.0.0.1:15020"', 'endpoint = "127.0.0.1"', "is not an endpoint"),
        ('period = "1 s", on_request = true', "on_request = false", "nothing triggers it"),
        ("id,table", "id,id", "column `id` has no name or appears twice"),
    ],
)
def test_each_mistake_is_refused_with_its_sentence(
    folder: Path, edit: Edit, old: str, new: str, said: str
) -> None:
    edit(old, new)
    assert any(said in problem for problem in problems(folder))


# S14: a counter read less often than it may stand still keeps a point from arming, and nobody knew why.
@pytest.mark.parametrize(("interval", "limit"), [("2 s", "500 ms"), ("500 ms", "500 ms"), ("1 s", "")])
def test_a_counter_that_is_read_too_seldom_to_be_seen_moving_is_told_with_its_line(
    folder: Path, edit: Edit, interval: str, limit: str
) -> None:
    edit('interval = "100 ms"', f'interval = "{interval}"')
    edit('liveness_timeout = "500 ms"', f'liveness_timeout = "{limit}"' if limit else "")
    line = (folder / "gateway.toml").read_text().splitlines().index(
        f'liveness_timeout = "{limit}"' if limit else "[[channel.device]]"
    ) + 1

    (found,) = [p for p in problems(folder) if "liveness_timeout" in p]

    assert found.startswith(f"gateway.toml:{line}:")
    assert "the interval of poll group `fast`, which reads `TK1.LIVE`" in found
    assert "nothing could be armed: read it more often, or give it longer" in found


def test_a_counter_nobody_decides_on_may_be_read_as_seldom_as_one_likes(folder: Path, edit: Edit) -> None:
    edit('interval = "100 ms"', 'interval = "2 s"')
    path = folder / "gateway.toml"
    text = path.read_text()
    path.write_text(text[: text.index("[[decision_point]]")])

    load(path)


def test_a_counter_of_another_device_vouches_for_nothing(folder: Path, edit: Edit) -> None:
    edit(
        "[[decision_point]]",
        """[[channel.device]]
id = "P2"
unit_id = 2
liveness_tag = "TK1.LIVE"
tags = [{ id = "P2.REMOTE", table = "holding", address = 0, type = "uint16", poll_group = "slow" }]

[channel.device.poll_group.slow]
interval = "1 s"

[[decision_point]]""",
    )

    assert any(
        "`TK1.LIVE` belongs to another device; a counter vouches for its own" in p for p in problems(folder)
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("unit_id = 1", 'unit_id = "one"', "`unit_id`: `one` is not allowed: give a whole number"),
        ('inputs = ["TK1.LT101",', 'inputs = "TK1.LT101" #', "`inputs`: `TK1.LT101` is not allowed: give"),
        ('interval = "100 ms"', "interval = true", "`interval`: "),
        ('id = "plc1"', "id = 7", "`id`: `7` is not allowed: give a text in quotes"),
        ("trigger = {", "trigger = 5 # {", "`trigger`: `5` is not allowed: give names, each with its value"),
        ("requests = true", 'requests = "perhaps"', "`requests`: `perhaps` is not allowed: give true or"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_what_belongs_there(
    folder: Path, edit: Edit, old: str, new: str, said: str
) -> None:
    edit(old, new)

    found = "\n".join(problems(folder))

    assert said in found
    assert "valid" not in found  # of pydantic's words, which name Python's types


def test_a_table_that_cannot_be_read_is_the_one_thing_told_not_each_of_its_tags(
    folder: Path, edit: Edit
) -> None:
    edit('tags_csv = "tk1.csv"', 'tags_csv = "tk2.csv"')
    assert problems(folder) == ("tk2.csv:1:1: the file cannot be read: No such file or directory",)
    (folder / "tk2.csv").write_bytes(b"id,table\n\xff\n")
    assert problems(folder) == ("tk2.csv:2:1: the file is not UTF-8 text",)


# S24 and S26: nothing may be armed by configuration without rules or without a binding sheet.
def test_armed_needs_required_modules_and_a_binding_sheet(folder: Path, edit: Edit) -> None:
    edit('mode = "shadow"', 'mode = "armed"')
    load(folder / "gateway.toml")
    edit('required_modules = ["buffer-tank"]', "")
    edit('binding_sheet = "binding.csv"', "")

    found = problems(folder)

    assert any("an empty rule set permits nothing" in p for p in found)
    assert any("binding_sheet" in p for p in found)


# S19
def test_two_decision_points_may_not_share_a_setpoint(folder: Path) -> None:
    path = folder / "gateway.toml"
    text = path.read_text()
    second = text[text.index("[[decision_point]]") :].replace('id = "buffer-tank"', 'id = "other"')
    path.write_text(text + second)

    assert any("one setpoint, one decision point" in p for p in problems(folder))


# S11
def test_lease_sum_names_its_terms(folder: Path) -> None:
    config: GatewayConfig = load(folder / "gateway.toml")
    terms = lease_sum(config, config.point("buffer-tank"))
    assert dict(terms)["PLC lease"] == pytest.approx(3.0)
    assert sum(seconds for _, seconds in terms) == pytest.approx(14.17)


def test_digest_moves_with_the_file_and_with_its_table(folder: Path, edit: Edit) -> None:
    first = load(folder / "gateway.toml").digest
    assert load(folder / "gateway.toml").digest == first
    edit("fast,,,Inflow", "fast,,,Inflow of tank 1")
    assert load(folder / "gateway.toml").digest != first


def test_spreadsheet_with_semicolons_and_quotes_is_read() -> None:
    node = parse_csv('\ufeff# note\nid;description\nA;"x; ""y"""\n\nB\n')
    assert node.plain() == [{"id": "A", "description": 'x; "y"'}, {"id": "B"}]
    assert node.at((0, "description")) == (3, 3)


def with_column(folder: Path, name: str, tag: str, cell: str) -> None:
    path = folder / "tk1.csv"
    rows = path.read_text().splitlines()
    column = [f"{row},{cell if row.startswith(f'{tag},') else ''}" for row in rows[1:]]
    path.write_text("\n".join([f"{rows[0]},{name}", *column]))


def with_min_change(folder: Path, tag: str, least: str) -> None:
    with_column(folder, "min_change", tag, least)


# S12
def test_a_writable_number_may_have_a_smallest_change(folder: Path) -> None:
    with_min_change(folder, "TK1.P101.SP", "0.5")
    config = load(folder / "gateway.toml")
    settings = point_settings(config, config.point("buffer-tank"))
    assert settings.least_change == {TagId("TK1.P101.SP"): Fraction(1, 2)}


@pytest.mark.parametrize(("tag", "least"), [("TK1.LT101", "0.5"), ("TK1.H101.CMD", "1")])
def test_what_is_read_only_or_a_switch_has_no_smallest_change(folder: Path, tag: str, least: str) -> None:
    with_min_change(folder, tag, least)
    assert any("only a writable number has a smallest change" in p for p in problems(folder))


@pytest.mark.parametrize("least", ["0", "-1"])
def test_a_smallest_change_is_more_than_nothing(folder: Path, least: str) -> None:
    with_min_change(folder, "TK1.P101.SP", least)
    assert any("min_change" in p for p in problems(folder))


def test_a_writable_number_may_have_a_largest_change(folder: Path) -> None:
    with_column(folder, "max_change", "TK1.P101.SP", "2.5")
    tags = {d.id: d for d in tag_definitions(load(folder / "gateway.toml"))}
    assert tags[TagId("TK1.P101.SP")].max_change == Fraction(5, 2)
    assert tags[TagId("TK1.LT101")].max_change is None


@pytest.mark.parametrize(
    ("tag", "most", "why"),
    [
        ("TK1.LT101", "0.5", "only a writable number has a largest change"),
        ("TK1.H101.CMD", "1", "only a writable number has a largest change"),
        ("TK1.P101.SP", "0", "max_change"),
        ("TK1.P101.SP", "0.05", "is less than one count, 0.1: nothing could move"),
    ],
)
def test_a_largest_change_that_lets_nothing_move_is_refused(
    folder: Path, tag: str, most: str, why: str
) -> None:
    with_column(folder, "max_change", tag, most)
    assert any(why in problem for problem in problems(folder))


def test_a_largest_change_below_the_smallest_is_refused(folder: Path) -> None:
    with_min_change(folder, "TK1.P101.SP", "1")
    with_column(folder, "max_change", "TK1.P101.SP", "0.5")
    assert any("less than min_change 1" in problem for problem in problems(folder))


# S12
def test_repairs_have_a_limit_unless_it_is_switched_off(folder: Path, edit: Edit) -> None:
    def limit() -> RepairLimit | None:
        config = load(folder / "gateway.toml")
        return point_settings(config, config.point("buffer-tank")).repair_limit

    assert limit() == RepairLimit(repairs=60, reversals=20, window_s=300.0)
    edit('max_skew = "200 ms"', 'max_skew = "200 ms"\nrepair_limit = { repairs = 5, window = "1 min" }')
    assert limit() == RepairLimit(repairs=5, reversals=20, window_s=60.0)
    edit('repair_limit = { repairs = 5, window = "1 min" }', 'repair_limit = "off"')
    assert limit() is None


# S12
def test_a_repair_is_looked_for_on_the_way_unless_the_point_says_nearest(folder: Path, edit: Edit) -> None:
    def way() -> str:
        config = load(folder / "gateway.toml")
        return point_settings(config, config.point("buffer-tank")).repair

    assert way() == "segment"
    edit('deadline = "100 ms"', 'deadline = "100 ms"\nrepair = "nearest"')
    assert way() == "nearest"
    edit('repair = "nearest"', 'repair = "anywhere"')
    (problem,) = problems(folder)
    assert problem.startswith("gateway.toml:")
    assert "`repair`: " in problem
    assert "nearest" in problem


# S24
def test_signed_only_needs_a_key_and_keys_are_keys(folder: Path) -> None:
    config = folder / "gateway.toml"
    before = config.read_text()
    config.write_text(before + "\n[modules]\nsigned_only = true\n")
    assert any("`signed_only` without `trusted_keys`" in problem for problem in problems(folder))
    config.write_text(before + '\n[modules]\nsigned_only = true\ntrusted_keys = ["AB12"]\n')
    assert any("`AB12` is not a public key of 64 small hex digits" in problem for problem in problems(folder))
    key = "0123456789abcdef" * 4
    config.write_text(before + f'\n[modules]\nsigned_only = true\ntrusted_keys = ["{key}"]\n')
    assert load(config).modules.trusted_keys == (key,)


def test_a_point_may_ask_for_some_proposals_and_no_more_than_eight(folder: Path, edit: Edit) -> None:
    config = load(folder / "gateway.toml")
    assert point_settings(config, config.point("buffer-tank")).n_best == 1
    edit('deadline = "100 ms"', 'deadline = "100 ms"\nn_best = 4')
    config = load(folder / "gateway.toml")
    assert point_settings(config, config.point("buffer-tank")).n_best == 4


@pytest.mark.parametrize("wanted", ["0", "9", '"many"', "2.5"])
def test_a_number_of_proposals_that_is_none_is_refused_with_its_line(
    folder: Path, edit: Edit, wanted: str
) -> None:
    edit('deadline = "100 ms"', f'deadline = "100 ms"\nn_best = {wanted}')
    (problem,) = problems(folder)
    assert problem.startswith("gateway.toml:")
    assert "`n_best`: " in problem
    assert "is not allowed" in problem
