"""Schedules as JSON, written to be edited by hand and read back with every fault located, and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.scheduling.schedule import LayerSchedule, Schedule, Tiling
from binpoint.scheduling.workload import Workload
from binpoint.support.diagnostics import Diagnostic, UserError, did_you_mean
from binpoint.support.json_text import JsonText, Path
from binpoint.support.target import Target

FORMAT, VERSION = "binpoint-schedule", 1
MAXIMUM_FAULTS = 20
"""How many faults of one document are reported; the rest are counted."""

_DOCUMENT_KEYS = ("format", "version", "network", "target", "batch", "layers")
_TARGET_KEYS = ("name", "pes", "tile")
_LAYER_KEYS = ("layer", "channels", "summary", "pe", "round")


def print_schedule(schedule: Schedule, target: Target, summaries: Mapping[str, Mapping[str, object]]) -> str:
    """The schedule as JSON, one line an image tile. Summaries are for the reader; `parse_schedule` ignores them."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "network": schedule.network,
        "target": {"name": target.name, "pes": target.pes, "tile": list(target.tile)},
        "batch": schedule.images,
        "layers": [
            {
                "layer": layer.layer,
                "channels": layer.channels,
                **({"summary": summaries[layer.layer]} if layer.layer in summaries else {}),
                "pe": layer.pe.tolist(),
                "round": layer.round.tolist(),
            }
            for layer in schedule.layers
        ],
    }
    return _layout(document) + "\n"


def print_csv(schedule: Schedule, without_statistics: Collection[str] = ()) -> str:
    """The schedule as CSV: layer,image,channel,pe,round,sampled, a line a pair; sampled is 0 or 1.

    It is 0 for every pair of the layers named in `without_statistics`, whatever PEs compute them.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("layer", "image", "channel", "pe", "round", "sampled"))
    for layer in schedule.layers:
        image, channel = np.indices((layer.images, layer.channels))
        sampled = layer.sample_mask() & (layer.layer not in without_statistics)
        columns = (image, channel, layer.by_pair(layer.pe), layer.by_pair(layer.round), sampled.astype(int))
        table = np.stack([column.ravel() for column in columns], axis=1)
        writer.writerows((layer.layer, *row) for row in table.tolist())
    return text.getvalue()


def parse_schedule(
    text: str, file: str, network: str, workloads: Sequence[Workload], target: Target, batch: int | None = None
) -> Schedule:
    """Read a schedule and check that it is one for this network, target and batch.

    Args:
        text: the JSON that `print_schedule` wrote, edited or not.
        file: its name in diagnostics.
        network: the network's name.
        workloads: the layers that the network has.
        target: the array; its statistics PEs decide what is sampled.
        batch: the number of images, None for the document's own.

    Returns:
        The layers of the document, in its order; it may leave layers out.

    Raises:
        UserError: with up to MAXIMUM_FAULTS located faults: syntax, keys and types, wrong network, target, batch,
            unknown layers, missing pairs, PEs that do not exist or have two tiles in one round.
    """
    return _Reader(JsonText(text, file, "schedule"), network, workloads, target, batch).schedule()


class _Reader:
    """Turns one parsed document into a schedule and gathers what is wrong on the way."""

    def __init__(
        self, source: JsonText, network: str, workloads: Sequence[Workload], target: Target, batch: int | None
    ) -> None:
        self.source = source
        self.network = network
        self.workloads = {workload.layer: workload for workload in workloads}
        self.target = target
        self.batch = batch
        self.faults: list[tuple[Path, Diagnostic]] = []

    def schedule(self) -> Schedule:
        document = self.source.data
        if self._is_object((), document, _DOCUMENT_KEYS):
            self._check_head(document)
        self._raise_any()
        batch = document["batch"]
        layers = [self._layer(index, entry, batch) for index, entry in enumerate(document["layers"])]
        self._check_repeated(layers)
        self._raise_any()
        return Schedule(self.network, self.target.name, batch, tuple(layer for layer in layers if layer is not None))

    def _check_repeated(self, layers: Sequence[LayerSchedule | None]) -> None:
        seen: set[str] = set()
        for index, layer in enumerate(layers):
            if layer is not None and layer.layer in seen:
                message = f"{layer.layer} is scheduled twice"
                self._fault(("layers", index, "layer"), "repeated-layer", message, layer.layer, "one entry a layer")
            elif layer is not None:
                seen.add(layer.layer)

    def _check_head(self, document: dict[str, Any]) -> None:
        target = self.target
        expected: list[tuple[Path, str, Any, Any]] = [
            (("format",), "wrong-format", document["format"], FORMAT),
            (("version",), "wrong-version", document["version"], VERSION),
            (("network",), "wrong-network", document["network"], self.network),
        ]
        if self._is_object(("target",), document["target"], _TARGET_KEYS):
            entry = document["target"]
            expected.append((("target", "name"), "wrong-target", entry["name"], target.name))
            expected.append((("target", "pes"), "wrong-target", entry["pes"], target.pes))
            expected.append((("target", "tile"), "wrong-target", entry["tile"], list(target.tile)))
        batch = document["batch"]
        if not _is_integer(batch) or batch < 1:
            self._fault(("batch",), "wrong-type", "batch is no number of images", _show(batch), "1 or more")
        elif self.batch is not None:
            expected.append((("batch",), "wrong-batch", batch, self.batch))
        if not isinstance(document["layers"], list):
            self._fault(("layers",), "wrong-type", "layers is no list", _show(document["layers"]), "a list of layers")
        for path, code, found, wanted in expected:
            if found != wanted or isinstance(found, bool):
                message = f"the schedule is for another {path[0]}"
                self._fault(path, code, message, _show(found), _show(wanted))

    def _layer(self, index: int, entry: Any, batch: int) -> LayerSchedule | None:
        path: Path = ("layers", index)
        if not self._is_object(path, entry, _LAYER_KEYS, optional=("summary",)):
            return None
        name = entry["layer"]
        workload = self.workloads.get(name) if isinstance(name, str) else None
        if workload is None:
            message, expected = f"{self.network} has no layer {_show(name)}", ", ".join(self.workloads)
            hint = did_you_mean(name, self.workloads) if isinstance(name, str) else None
            self._fault((*path, "layer"), "unknown-layer", message, _show(name), expected, hint)
            return None
        if entry["channels"] != workload.channels:
            message, found = f"{name} has {workload.channels} output channels", _show(entry["channels"])
            self._fault((*path, "channels"), "wrong-channels", message, found, str(workload.channels))
            return None
        rows = workload.rows or batch
        tiling = Tiling(rows, workload.channels, self.target.tile)
        pe = self._matrix((*path, "pe"), entry["pe"], f"{name}: ", tiling, "PE", self.target.pes)
        tiles = tiling.counts[0] * tiling.counts[1]
        rounds = self._matrix((*path, "round"), entry["round"], f"{name}: ", tiling, "round", tiles)
        if pe is None or rounds is None:
            return None
        sampled = self.target.statistics_mask[pe]
        layer = LayerSchedule(name, rows, workload.channels, self.target.pes, self.target.tile, pe, rounds, sampled)
        for conflict in layer.clashes():
            message = f"{name}: {tiling.name(conflict.tile)}: {conflict.message}"
            self._fault((*path, conflict.array, *conflict.tile), "schedule-conflict", message, None, conflict.expected)
        return layer

    def _matrix(
        self, path: Path, rows: Any, prefix: str, tiling: Tiling, what: str, end: int
    ) -> NDArray[np.int32] | None:
        """The nested lists as an array over tiles, None where they are no lists or have the wrong lengths.

        Numbers out of range are reported, too, and become -1.
        """
        before = len(self.faults)
        wrong: list[tuple[int, int]] = []
        height, width = tiling.counts
        if not isinstance(rows, list):
            self._fault(path, "wrong-type", f"{prefix}{path[-1]} is no list", _show(rows), f"a list of {height} lists")
            return None
        for i, row in enumerate(rows[:height]):
            if not isinstance(row, list):
                message = f"{prefix}{path[-1]} of {_images(tiling, i)} is no list"
                self._fault((*path, i), "wrong-type", message, _show(row), f"a list of {width} numbers")
                continue
            for j, value in enumerate(row[:width]):
                if type(value) is not int or not 0 <= value < end:
                    self._entry((*path, i, j), value, f"{prefix}{tiling.name((i, j))}", what, end)
                    wrong.append((i, j))
            if len(row) != width:
                missing = tiling.name((i, len(row))) if len(row) < width else _images(tiling, i)
                self._length((*path, i), row, width, prefix + missing)
        if len(rows) != height:
            missing = _images(tiling, len(rows)) if len(rows) < height else "images"
            self._length(path, rows, height, prefix + missing)
        if len(self.faults) > before + len(wrong):
            return None
        known = [list(row) for row in rows] if wrong else rows
        for i, j in wrong:
            known[i][j] = -1
        return np.array(known, np.int32)

    def _entry(self, path: Path, value: Any, where: str, what: str, end: int) -> None:
        expected = f"{what} 0 to {end - 1}"
        if value is None:
            self._fault(path, "missing-pair", f"{where}: no {what}", "null", expected)
        else:
            self._fault(
                path, "schedule-conflict", f"{where}: there is no {what} {_show(value)}", _show(value), expected
            )

    def _length(self, path: Path, entries: list[Any], wanted: int, where: str) -> None:
        """Report a list that is too short (some pairs have no PE) or too long."""
        found, expected = f"{len(entries)} entries", f"{wanted} entries"
        if len(entries) < wanted:
            rest = "" if len(entries) == wanted - 1 else " and what follows"
            self._fault(path, "missing-pair", f"{where}{rest}: missing in {path[2]}", found, expected)
        else:
            self._fault(path, "extra-pair", f"{where}: more entries in {path[2]} than there are tiles", found, expected)

    def _is_object(self, path: Path, value: Any, keys: Sequence[str], optional: Sequence[str] = ()) -> bool:
        """Whether the value is an object with these keys; reports what is wrong."""
        if not isinstance(value, dict):
            self._fault(path, "wrong-type", "this is no object", _show(value), f"an object with {', '.join(keys)}")
            return False
        for key in value:
            if key not in keys:
                hint = did_you_mean(key, keys)
                self._fault((*path, key), "unknown-key", f'the schedule has no key "{key}"', key, ", ".join(keys), hint)
        missing = [key for key in keys if key not in value and key not in optional]
        for key in missing:
            self._fault(path, "missing-key", f'the key "{key}" is missing', None, key)
        return not missing

    def _fault(
        self, path: Path, code: str, message: str, found: str | None, expected: str, hint: str | None = None
    ) -> None:
        self.faults.append((path, Diagnostic(code, message, None, found, expected, hint)))

    def _raise_any(self) -> None:
        """Raise what was gathered. Places are looked up only now: a good document is never walked."""
        shown = self.faults[:MAXIMUM_FAULTS]
        if not shown:
            return
        places = self.source.places({path for path, _ in shown})
        diagnostics = [replace(diagnostic, location=places[path]) for path, diagnostic in shown]
        hidden = len(self.faults) - len(shown)
        if hidden:
            diagnostics.append(
                Diagnostic("more-faults", f"the schedule has {hidden} more faults", places[shown[-1][0]])
            )
        raise UserError(*diagnostics)


def _images(tiling: Tiling, row: int) -> str:
    """The images of a row of tiles."""
    return tiling.name((row, 0)).split(",")[0]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _show(value: Any) -> str:
    """A value as JSON, shortened."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _layout(value: Any, indent: int = 0) -> str:
    """JSON text with lists of numbers and objects of plain values on one line, everything else indented."""
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(value, dict | list) or not any(isinstance(item, dict | list) and item for item in items):
        return json.dumps(value)
    margin = "  " * (indent + 1)
    if isinstance(value, dict):
        lines = [f"{margin}{json.dumps(key)}: {_layout(item, indent + 1)}" for key, item in value.items()]
    else:
        lines = [margin + _layout(item, indent + 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(lines) + "\n" + "  " * indent + closing
