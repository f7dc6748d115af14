from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from binpoint.backends.program import TensorPolicy
from binpoint.runtime import archive, artifact
from binpoint.runtime.artifact import describe_policy, read_artifact, read_artifact_with_manifest, write_artifact
from binpoint.runtime.manifest import Origin, Source, digest
from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.schedule import Schedule
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import ExponentRule, UpdatePolicy
from tests.programs import TARGET, classifier, compiled, with_policies

SCHEDULE = Schedule("small", TARGET.name, 4, (schedule_layer("conv", 4, 5, TARGET),))

ORIGIN = Origin(Source.DRAW, seed=0)


def written(folder: Path) -> Path:
    path = folder / "small.bpz"
    write_artifact(path, replace(compiled(), schedule=SCHEDULE, origin=ORIGIN))
    return path


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def forge(path: Path, member: str, data: bytes) -> None:
    """Put another member into an artifact, with the hash that belongs to it."""
    members = {**members_of(path), member: data}
    if member != "manifest.json":
        manifest = json.loads(members["manifest.json"])
        manifest["sha256"][member] = digest(data)
        members["manifest.json"] = json.dumps(manifest).encode()
    path.write_bytes(archive.pack(members))


def fault(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_artifact(path)
    (diagnostic,) = caught.value.diagnostics
    assert str(path) in str(diagnostic.location)
    return f"{diagnostic.code}: {diagnostic}"


def test_an_artifact_comes_back_as_it_was(tmp_path: Path) -> None:
    given = replace(compiled(), schedule=SCHEDULE, origin=ORIGIN)
    back, manifest = read_artifact_with_manifest(written(tmp_path))
    assert (back.program, back.ir, back.target, back.batch) == (given.program, given.ir, given.target, given.batch)
    assert (back.exponents, back.schedule, back.origin) == (given.exponents, given.schedule, ORIGIN)
    for tensors, expected in ((back.mantissas, given.mantissas), (back.floats, given.floats)):
        assert set(tensors) == set(expected)
        for name, tensor in expected.items():
            np.testing.assert_array_equal(tensors[name], tensor, strict=True)
    assert (manifest.network, manifest.target, manifest.batch) == ("small", "tests", 4)


def test_the_same_contents_give_the_same_bytes(tmp_path: Path) -> None:
    first = written(tmp_path).read_bytes()
    again = tmp_path / "again.bpz"
    given = replace(compiled(), schedule=SCHEDULE, origin=ORIGIN)
    backwards = {field: dict(reversed(getattr(given, field).items())) for field in ("mantissas", "exponents", "floats")}
    write_artifact(again, replace(given, **backwards))
    assert again.read_bytes() == first
    write_artifact(again, read_artifact(again))
    assert again.read_bytes() == first


def test_without_an_edited_schedule_there_is_none_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "small.bpz"
    write_artifact(path, compiled())
    assert set(members_of(path)) == {"manifest.json", *artifact.REQUIRED_MEMBERS}
    assert read_artifact(path).schedule is None


def test_a_file_that_cannot_be_written_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write"):
        write_artifact(tmp_path / "no folder" / "small.bpz", compiled())


def test_any_damaged_byte_gives_an_error_or_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    expected = read_artifact(path)
    unnoticed = 0
    for position in np.random.default_rng(1).choice(len(whole), 150, replace=False).tolist():
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        try:
            back = read_artifact(path)
        except UserError:
            continue
        unnoticed += 1
        assert (back.program, back.exponents, back.schedule) == (expected.program, expected.exponents, SCHEDULE)
    # Dates and permissions in the zip's own headers are not read.
    assert unnoticed < 15


@pytest.mark.parametrize("member", ["manifest.json", *artifact.REQUIRED_MEMBERS])
def test_every_required_member_is_missed(tmp_path: Path, member: str) -> None:
    path = written(tmp_path)
    members = members_of(path)
    del members[member]
    path.write_bytes(archive.pack(members))
    assert f'the member "{member}" is missing' in fault(path)
    if member != "manifest.json":
        manifest = json.loads(members["manifest.json"])
        del manifest["sha256"][member]
        path.write_bytes(archive.pack({**members, "manifest.json": json.dumps(manifest).encode()}))
        assert f'the member "{member}" is missing' in fault(path)


def test_an_artifact_of_before_origins_were_recorded_is_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    manifest = json.loads(members_of(path)["manifest.json"])
    del manifest["weights"]
    forge(path, "manifest.json", json.dumps(manifest).encode())
    assert read_artifact(path).origin is None


@pytest.mark.parametrize(
    ("member", "old", "new", "count"),
    [
        ("manifest.json", '"network": "small"', '"network": "large"', 1),
        ("manifest.json", '"target": "tests"', '"target": "dlu2048"', 1),
        ("program.mlir", 'target = "tests"', 'target = "dlu2048"', 1),
        ("program.mlir", "@small", "@large", 1),
        ("target.toml", 'name = "tests"', 'name = "others"', 1),
    ],
)
def test_members_of_different_artifacts_are_refused(
    tmp_path: Path, member: str, old: str, new: str, count: int
) -> None:
    path = tmp_path / "small.bpz"
    write_artifact(path, compiled())
    text = members_of(path)[member].decode()
    assert text.count(old) == count
    forge(path, member, text.replace(old, new).encode())
    assert fault(path).startswith("mixed-artifact")


def test_an_exchanged_member_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path)
    members = members_of(path)
    path.write_bytes(archive.pack({**members, "target.toml": members["target.toml"] + b"\n"}))
    assert "its hash differs" in fault(path)
    manifest = json.loads(members["manifest.json"])
    del manifest["sha256"]["schedule.json"]
    path.write_bytes(archive.pack({**members, "manifest.json": json.dumps(manifest).encode()}))
    assert 'does not list the member "schedule.json"' in fault(path)


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    manifest = json.loads(members_of(path)["manifest.json"])
    forge(path, "manifest.json", json.dumps({**manifest, "format_version": 2, "more": 1}).encode())
    assert fault(path).startswith("newer-artifact")


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: [],
        lambda manifest: {**manifest, "format": "another"},
        lambda manifest: {**manifest, "format_version": True},
        lambda manifest: {**manifest, "batch": 0},
        lambda manifest: {**manifest, "policy": "words"},
        lambda manifest: {**manifest, "weights": "random"},
        lambda manifest: {**manifest, "weights": {"source": "draw", "seed": True}},
        lambda manifest: {**manifest, "weights": {"source": "file", "seed": 0}},
        lambda manifest: {**manifest, "weights": {"source": "training", "seed": 0}},
        lambda manifest: {**manifest, "sha256": {"program.mlir": 1}},
        lambda manifest: {key: value for key, value in manifest.items() if key != "network"},
    ],
)
def test_a_manifest_must_be_whole(tmp_path: Path, change: Callable[[dict], object]) -> None:
    path = written(tmp_path)
    forge(path, "manifest.json", json.dumps(change(json.loads(members_of(path)["manifest.json"]))).encode())
    assert fault(path).startswith("damaged-artifact")


@pytest.mark.parametrize(
    ("member", "data", "code"),
    [
        ("manifest.json", b"{", "bad-json"),
        ("manifest.json", b"[" * 100_000, "bad-json"),
        ("manifest.json", b"\xff", "damaged-artifact"),
        ("program.mlir", b"builtin.module {", "invalid-ir"),
        ("program.mlir", b"builtin.module {\n}\n", "not-a-program"),
        ("program.mlir", b"\xc3\x28", "damaged-artifact"),
        ("target.toml", b"pes = ", "bad-toml"),
        ("schedule.json", b"{}", "missing-key"),
        ("exponents.json", b"[]", "bad-exponents"),
        ("weights.safetensors", b"\x00" * 40, "damaged-artifact"),
        ("float.safetensors", b"", "damaged-artifact"),
    ],
)
def test_each_member_is_checked_also_with_the_right_hash(tmp_path: Path, member: str, data: bytes, code: str) -> None:
    path = written(tmp_path)
    forge(path, member, data)
    with pytest.raises(UserError) as caught:
        read_artifact(path)
    assert code in {diagnostic.code for diagnostic in caught.value.diagnostics}
    assert all(str(path) in str(diagnostic.location) for diagnostic in caught.value.diagnostics)


@pytest.mark.parametrize(
    ("member", "name", "change", "text"),
    [
        ("weights", "conv.weight", lambda tensor: tensor[:, :, :2], "shape (5, 1, 2, 3)"),
        ("weights", "conv.weight", lambda tensor: tensor.astype(np.int16), "int16"),
        ("weights", "conv.weight", lambda tensor: tensor + np.int8(40), "exceeds 6 bits"),
        ("weights", "conv.bias", lambda tensor: None, '"conv.bias" is missing'),
        ("float", "fc.weight", lambda tensor: tensor.astype(np.float64), "float64"),
        ("float", "fc.weight", lambda tensor: tensor * np.float32(np.nan), "NaN"),
        ("float", "fc.bias", lambda tensor: None, '"fc.bias" is missing'),
    ],
)
def test_tensors_must_fit_the_program(
    tmp_path: Path, member: str, name: str, change: Callable[[np.ndarray], np.ndarray | None], text: str
) -> None:
    path = written(tmp_path)
    tensors = load(members_of(path)[f"{member}.safetensors"])
    changed = change(tensors.pop(name))
    if changed is not None:
        tensors[name] = np.ascontiguousarray(changed)
    forge(path, f"{member}.safetensors", save(tensors))
    assert text in fault(path)


def test_unknown_tensors_are_named_with_all_other_faults(tmp_path: Path) -> None:
    path = written(tmp_path)
    tensors = load(members_of(path)["weights.safetensors"])
    tensors["conv.wait"] = tensors.pop("conv.weight")
    forge(path, "weights.safetensors", save(tensors))
    with pytest.raises(UserError) as caught:
        read_artifact(path)
    unknown, missing = caught.value.diagnostics
    assert unknown.hint == 'did you mean "conv.weight"?'
    assert "is missing" in missing.message


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("conv.weight", None, "is missing"),
        ("conv.weight", 1.5, "is no integer"),
        ("conv.weight", True, "is no integer"),
        ("image", 200, "outside of its range"),
        ("pool", 0, 'no tensor "pool"'),
    ],
)
def test_exponents_must_fit_the_program(tmp_path: Path, name: str, value: object, text: str) -> None:
    path = written(tmp_path)
    exponents = json.loads(members_of(path)["exponents.json"])
    exponents[name] = value
    if value is None:
        del exponents[name]
    forge(path, "exponents.json", json.dumps(exponents).encode())
    assert text in fault(path)


def test_policies_are_told_in_words_the_most_common_first() -> None:
    slow = TensorPolicy(UpdatePolicy(ExponentRule.MSB_MAX, period=5))
    program = with_policies(classifier(), {"conv": slow})
    assert describe_policy(program.policies) == (
        "msb-histogram(r_max = 2e-5)",
        "msb-max every 5",
    )
