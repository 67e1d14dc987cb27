"""Keys, signatures, and what a trusted signature is worth in the watched folder (S24)."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.solver.bytecode.accept import accepted, compiled_file
from gateway.solver.bytecode.load import load
from gateway.solver.bytecode.signing import KeyRefusedError, Trust, generate, is_key, signature_problem
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.in_force.acts import ActRefusedError, Acts
from gateway.solver.in_force.watcher import Content, FileGone, FileSettled, is_module_name
from tests.unit.solver_demo import BUFFER_TANK, TAGS
from tests.unit.true_registry import TrueBench

TANK = BUFFER_TANK.read_text()
WEAKER = TANK.replace('"revision": 7', '"revision": 8').replace('"error": "0.01"', '"error": "0.009"')
assert WEAKER.count("0.009") == 1


class Keys:
    """Key pairs of a test by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.public: dict[str, str] = {}
        for name in ("ours", "theirs"):
            _, self.public[name] = generate(folder / f"{name}.key")

    def file(self, text: str, signer: str | None = None) -> bytes:
        key = self._folder / f"{signer}.key" if signer is not None else None
        return compiled_file(text.encode(), "tank.json", TAGS, key)[0]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def settled(bench: TrueBench, name: str, data: bytes) -> FileSettled:
    (bench.folder / name).write_bytes(data)
    return FileSettled(name, Content(data, sha256(data).hexdigest(), owners=frozenset({0})))


def test_a_key_pair_is_for_its_owner_only_and_never_written_over(tmp_path: Path) -> None:
    private = tmp_path / "plant.key"
    public, text = generate(private)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert public == tmp_path / "plant.pub"
    assert is_key(text)
    before = private.read_bytes()
    with pytest.raises(KeyRefusedError, match="is there already"):
        generate(private)
    public.unlink()
    with pytest.raises(KeyRefusedError, match=r"plant\.key` is there already"):
        generate(private)
    assert private.read_bytes() == before
    with pytest.raises(KeyRefusedError, match="cannot be written"):
        generate(tmp_path / "nowhere" / "a.key")


def test_a_key_that_is_none_is_refused_in_words(tmp_path: Path, keys: Keys) -> None:
    with pytest.raises(KeyRefusedError, match="cannot be read"):
        compiled_file(TANK.encode(), "tank.json", TAGS, tmp_path / "none.key")
    (tmp_path / "bad.key").write_text("no key")
    with pytest.raises(KeyRefusedError, match="cannot be used"):
        compiled_file(TANK.encode(), "tank.json", TAGS, tmp_path / "bad.key")
    with pytest.raises(KeyRefusedError, match="cannot be used"):
        compiled_file(TANK.encode(), "tank.json", TAGS, tmp_path / "ours.pub")
    assert is_key(keys.public["ours"])
    assert not any(is_key(text) for text in ("", "0" * 63, "G" * 64, "A" * 64))


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o602, 0o601])
def test_a_key_that_other_accounts_may_read_or_change_is_refused(
    tmp_path: Path, keys: Keys, mode: int
) -> None:
    (tmp_path / "ours.key").chmod(mode)
    with pytest.raises(KeyRefusedError, match=rf"other accounts \(mode {mode:04o}\): `chmod 600"):
        keys.file(TANK, "ours")
    (tmp_path / "link.key").symlink_to(tmp_path / "ours.key")
    with pytest.raises(KeyRefusedError, match="other accounts"):
        keys.file(TANK, "link")
    for fine in (0o400, 0o600, 0o640):
        (tmp_path / "ours.key").chmod(fine)
        assert keys.file(TANK, "link") == keys.file(TANK, "ours")


# A pipe would hold the daemon's start for ever, an endless device fill its memory.
def test_what_is_no_plain_file_of_a_keys_size_is_no_key(tmp_path: Path, keys: Keys) -> None:
    os.mkfifo(tmp_path / "pipe.key", 0o600)
    (tmp_path / "null.key").symlink_to("/dev/zero")
    (tmp_path / "long.key").write_bytes((tmp_path / "ours.key").read_bytes() + b"\n" * 70_000)
    (tmp_path / "long.key").chmod(0o600)
    (tmp_path / "empty.key").touch(0o600)
    whys = {
        "pipe": "not a regular file",
        "null": "not a regular file",
        "long": "longer than",
        "empty": "cannot be used",
    }
    for name, why in whys.items():
        with pytest.raises(KeyRefusedError, match=why):
            keys.file(TANK, name)


def test_a_key_of_a_kind_nobody_knows_is_refused_in_words(tmp_path: Path, keys: Keys) -> None:
    text = (tmp_path / "ours.key").read_text()
    der = base64.b64decode("".join(text.splitlines()[1:-1]))
    unknown = der.replace(bytes.fromhex("06032b6570"), bytes.fromhex("06032b6579"))
    assert unknown != der
    lines = ["-----BEGIN PRIVATE KEY-----", base64.b64encode(unknown).decode(), "-----END PRIVATE KEY-----"]
    (tmp_path / "odd.key").write_text("\n".join(lines))
    (tmp_path / "odd.key").chmod(0o600)
    with pytest.raises(KeyRefusedError, match="cannot be used"):
        keys.file(TANK, "odd")


def test_no_half_of_a_pair_is_left_where_the_other_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "plant.pub").symlink_to(tmp_path / "nowhere")
    with pytest.raises(KeyRefusedError, match="is there already"):
        generate(tmp_path / "plant.key")
    assert not (tmp_path / "plant.key").exists()
    with pytest.raises(KeyRefusedError, match="what the public key would be called"):
        generate(tmp_path / "other.pub")
    assert {path.name for path in tmp_path.iterdir()} == {"plant.pub"}


def test_signing_is_reproducible_and_covers_every_byte(keys: Keys) -> None:
    data = keys.file(TANK, "ours")
    assert data == keys.file(TANK, "ours")
    unsigned = keys.file(TANK)
    assert data[: len(unsigned) - 1] == unsigned[:-1]
    assert signature_problem(load(data, "x.o3c")) == ""
    grafted = keys.file(WEAKER)[:-1] + data[len(unsigned) - 1 :]
    assert "does not fit: something was changed" in signature_problem(load(grafted, "x.o3c"))
    other_key = data[:-96] + bytes.fromhex(keys.public["theirs"]) + data[-64:]
    assert "does not fit" in signature_problem(load(other_key, "x.o3c"))


def test_s24_signed_only_takes_what_a_trusted_key_signed_and_nothing_else(keys: Keys) -> None:
    trust = Trust(frozenset({keys.public["ours"]}), signed_only=True)
    good = accepted(keys.file(TANK, "ours"), "tank.o3c", TAGS, trust)
    assert good.signed_by == keys.public["ours"]
    assert good.text == TANK

    def why(data: bytes, name: str = "tank.o3c", trusted: Trust = trust) -> str:
        with pytest.raises(ModuleRefusedError) as caught:
            accepted(data, name, TAGS, trusted)
        return str(caught.value)

    assert "a source has no signature; o3ctl compile --input" in why(TANK.encode(), "tank.json")
    assert "the module has no signature" in why(keys.file(TANK))
    assert "which is not among the `trusted_keys`" in why(keys.file(TANK, "theirs"))
    broken = bytearray(keys.file(TANK, "ours"))
    broken[-1] ^= 1
    assert "does not fit: something was changed" in why(bytes(broken))
    assert "does not fit" in why(bytes(broken), trusted=Trust())  # whoever signs wants it to count
    assert accepted(keys.file(TANK, "theirs"), "tank.o3c", TAGS, Trust()).signed_by == ""


async def test_s24_a_signed_weakening_needs_no_second_person_and_the_log_says_whose_key(
    tmp_path: Path, keys: Keys
) -> None:
    bench = TrueBench(tmp_path, trust=Trust(frozenset({keys.public["ours"]})))
    registry = bench.registry()
    await registry.start([settled(bench, "tank.o3c", keys.file(TANK))])
    bench.armed = True

    await registry.apply([settled(bench, "tank.o3c", keys.file(WEAKER, "theirs"))])
    [status] = registry.statuses()
    assert (status.state, status.revision) == ("pending", 7)

    await registry.apply([settled(bench, "tank.o3c", keys.file(WEAKER, "ours"))])
    [status] = registry.statuses()
    assert (status.state, status.revision, status.refused_because) == ("active", 8, ())
    assert ("module_approved", f"key:{keys.public['ours']}") in bench.recorded
    report = (bench.folder / "tank.o3c.accepted.txt").read_text()
    assert f"signed with key {keys.public['ours'][:16]}" in report


# S1
async def test_s24_a_signed_weakening_of_an_armed_point_still_waits_for_the_proof_of_its_safe_set(
    tmp_path: Path, keys: Keys
) -> None:
    bench = TrueBench(tmp_path, trust=Trust(frozenset({keys.public["ours"]})))
    registry = bench.registry()
    await registry.start([settled(bench, "tank.o3c", keys.file(TANK))])
    bench.armed, bench.proved = True, False
    await registry.apply([settled(bench, "tank.o3c", keys.file(WEAKER, "ours"))])
    [status] = registry.statuses()
    assert (status.state, status.revision) == ("pending", 7)
    assert "approved, and in force once its safe set is proved" in status.refused_because[0]
    await registry.apply([settled(bench, "tank.o3c", keys.file(WEAKER, "ours"))])  # told again
    assert len([k for k, _ in bench.recorded if k == "module_approved"]) == 1


async def test_s24_a_signature_approves_no_rollback(tmp_path: Path, keys: Keys) -> None:
    bench = TrueBench(tmp_path, trust=Trust(frozenset({keys.public["ours"]})))
    registry = bench.registry()
    await registry.start([settled(bench, "tank.o3c", keys.file(WEAKER, "ours"))])
    tighter = TANK.replace('"revision": 7', '"revision": 9')
    await registry.apply([settled(bench, "tank.o3c", keys.file(tighter, "ours"))])
    [status] = registry.statuses()
    assert (status.state, status.revision) == ("active", 9)
    bench.armed = True
    await Acts(registry).roll_back("buffer-tank", "ann")
    await registry.apply([])
    [status] = registry.statuses()
    assert (status.state, status.revision) == ("pending", 9)


async def test_the_same_source_compiled_and_signed_takes_the_place_of_the_json_and_outlives_a_restart(
    tmp_path: Path, keys: Keys
) -> None:
    bench = TrueBench(tmp_path)
    registry = bench.registry()
    await registry.start([settled(bench, "tank.json", TANK.encode())])
    (bench.folder / "tank.json").unlink()
    data = keys.file(TANK, "ours")
    await registry.apply([settled(bench, "tank.o3c", data), FileGone("tank.json")])
    held = registry.sets.active["buffer-tank"]
    assert (held.file, held.data) == ("tank.o3c", data)

    bench.trust = Trust(frozenset({keys.public["ours"]}), signed_only=True)
    again = bench.registry()
    await again.start([])
    assert again.sets.active["buffer-tank"].module.signed_by == keys.public["ours"]

    bench.trust = Trust(frozenset({keys.public["theirs"]}), signed_only=True)
    revoked = bench.registry()
    await revoked.start([])
    assert "buffer-tank" not in revoked.sets.active  # and what is not there permits nothing
    assert any("not among the `trusted_keys`" in s.refused_because[0] for s in revoked.statuses())


async def test_people_load_compiled_modules_under_their_name(tmp_path: Path, keys: Keys) -> None:
    bench = TrueBench(tmp_path)
    registry = bench.registry()
    await registry.start([])
    acts = Acts(registry)
    await acts.load("tank.o3c", keys.file(TANK), "ann", priority=3)
    held = registry.sets.active["buffer-tank"]
    assert (held.module.priority, held.file, held.data) == (3, "tank.o3c", keys.file(TANK))
    assert (bench.folder / "tank.o3c").read_bytes() == keys.file(TANK)
    with pytest.raises(ActRefusedError, match=r"ends in \.json or \.o3c"):
        await acts.load("tank.exe", b"", "ann")
    damaged = bytearray(keys.file(WEAKER))
    damaged[700] ^= 4
    with pytest.raises(ActRefusedError, match=r"at byte .*: the checksum does not fit"):
        await acts.load("tank.o3c", bytes(damaged), "ann")
    assert registry.sets.active["buffer-tank"] is held


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[: len(data) // 2],
        lambda _: b"",
        lambda data: data[:50] + bytes(4_000),
        lambda data: data.replace(b"\r\n", b"\n"),
    ],
)
async def test_a_damaged_file_never_evicts_the_last_good(
    tmp_path: Path, keys: Keys, spoil: Callable[[bytes], bytes]
) -> None:
    bench = TrueBench(tmp_path)
    registry = bench.registry()
    await registry.start([settled(bench, "tank.o3c", keys.file(TANK))])
    await registry.apply([settled(bench, "tank.o3c", spoil(keys.file(WEAKER)))])
    [status] = registry.statuses()
    assert (status.state, status.revision) == ("active", 7)
    assert "at byte " in status.refused_because[0]
    assert (bench.folder / "tank.o3c.refused.txt").exists()


def test_the_watched_folder_takes_compiled_modules() -> None:
    assert is_module_name("tank.o3c")
    assert not is_module_name(".tank.o3c.tmp")
