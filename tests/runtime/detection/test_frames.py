"""Frames in order, the folder of results, and its CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from binpoint.backends.kernel import Events
from binpoint.runtime.detection.decode import Detection
from binpoint.runtime.detection.frames import FrameLog, list_frames, prepare_folder
from binpoint.runtime.session import TensorReport
from binpoint.support.diagnostics import UserError


def touch(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


def code(call, *arguments, **options) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments, **options)
    return caught.value.diagnostics[0].code


def test_frames_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    touch(tmp_path, "cam2-10.jpg", "cam2-9.png", "cam2-011.jpg", "notes.txt")
    assert [path.name for path in list_frames(tmp_path)] == ["cam2-9.png", "cam2-10.jpg", "cam2-011.jpg"]


def test_folders_that_are_no_stream(tmp_path: Path) -> None:
    assert code(list_frames, tmp_path / "none") == "unreadable-file"
    assert code(list_frames, touch(tmp_path / "a")) == "empty-data"
    assert code(list_frames, touch(tmp_path / "b", "1.png", "x.png")) == "not-a-frame"
    assert code(list_frames, touch(tmp_path / "c", "1.png", "01.png")) == "not-a-frame"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_each_frame_has_its_own_rows(tmp_path: Path) -> None:
    dog = Detection(0, "dog, big", 0.5, (1, 2, 3.25, 4))
    reports = [TensorReport("conv", -3, 0, Events(100, 4, 9, 1)), TensorReport("conv", -2, 1, Events(200, 5, 9, 1))]
    with FrameLog(tmp_path) as log:
        log.add(Path("in/f007.png"), [dog, dog], 0.0125, reports[:1])
        assert len(rows(tmp_path / "frames.csv")) == 1  # while the stream goes on
        log.add(Path("in/f008.png"), [], 0.5, reports[1:])
    first, second = rows(tmp_path / "frames.csv")
    assert first == {
        "frame": "7",
        "file": "f007.png",
        "detections": "2",
        "classes": "2 dog, big",
        "milliseconds": "12.500",
    }
    assert (second["frame"], second["detections"], second["classes"]) == ("8", "0", "")
    (found, _) = rows(tmp_path / "detections.csv")
    assert (found["class"], found["score"], found["x0"], found["y1"]) == ("dog, big", "0.500000", "1.00", "4.00")
    layers = rows(tmp_path / "layers.csv")
    assert [row["finest_exponent"] for row in layers] == ["-3", "-2"]
    assert [row["saturated"] for row in layers] == ["4", "1"]
    assert [row["results"] for row in layers] == ["100", "100"]
    assert [row["underflowed"] for row in layers] == ["9", "0"]


def test_a_frame_is_listed_after_all_its_rows(tmp_path: Path) -> None:
    """Wherever a stream is interrupted, the other tables are complete for every frame in the list."""

    def interrupted() -> Iterator[TensorReport]:
        yield TensorReport("conv", -3, 0, Events(100))
        raise KeyboardInterrupt

    with FrameLog(tmp_path) as log:
        log.add(Path("1.png"), [], 0.1, [TensorReport("conv", -3, 0, Events(50))])
        with pytest.raises(KeyboardInterrupt):
            log.add(Path("2.png"), [Detection(0, "dog", 0.5, (1, 2, 3, 4))], 0.1, interrupted())
    assert [row["frame"] for row in rows(tmp_path / "frames.csv")] == ["1"]
    assert [row["frame"] for row in rows(tmp_path / "detections.csv")] == ["2"]


def test_results_are_replaced_only_if_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    prepare_folder(folder, replace=False)
    prepare_folder(folder, replace=False)
    with FrameLog(folder) as log:
        log.add(Path("1.jpg"), [], 0.1, [])
    touch(folder, "1.png")
    assert code(prepare_folder, folder, replace=False) == "occupied-folder"
    prepare_folder(folder, replace=True)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("foreign", ["2.png", "notes.txt"])
def test_other_files_are_never_removed(tmp_path: Path, foreign: str) -> None:
    with FrameLog(tmp_path) as log:
        log.add(Path("1.jpg"), [], 0.1, [])
    touch(tmp_path, "1.png", foreign)
    assert code(prepare_folder, tmp_path, replace=True) == "occupied-folder"
    assert (tmp_path / "1.png").exists()
    (tmp_path / "frames.csv").unlink()
    assert code(prepare_folder, tmp_path, replace=True) == "occupied-folder"
