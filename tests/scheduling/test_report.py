"""What is said of a layer: facts and warnings."""

from dataclasses import replace

from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.report import LayerReport, coverage_warnings, report_layer
from binpoint.scheduling.workload import Workload
from binpoint.support.target import Allocation, RotationCount, Target
from binpoint.support.target_file import load_target

DLU = replace(load_target("dlu2048"), allocation=Allocation())
"""Each mini-batch alike."""


def report(layer: str, images: int, channels: int, target: Target = DLU, *, statistics: bool = True) -> LayerReport:
    workload = Workload(layer, channels, 1, 1, 1, 1, 1, 1, statistics)
    return report_layer(schedule_layer(layer, images, channels, target), workload, target)


def test_the_facts_of_a_layer() -> None:
    facts = report("conv1", 64, 8).facts()
    assert facts["pairs"] == 512
    assert facts["utilisation"] == 0.25
    assert facts["unsampled_channels"] == [1, 3, 5, 7]
    assert facts["sampled_pairs"] == facts["sampled_images"] == 32


def test_a_layer_without_statistics_has_no_sampling_facts() -> None:
    facts = report("pool1", 64, 8, statistics=False).facts()
    assert facts["sampled_pairs"] is facts["unsampled_channels"] is None
    assert facts["rounds"] == 1


def test_complete_layers_are_not_warned_of() -> None:
    assert coverage_warnings([report("conv1", 64, 64), report("pool1", 64, 8, statistics=False)], DLU) == []


def test_layers_of_one_kind_share_a_warning_with_a_remedy() -> None:
    reports = [report("conv1", 64, 8), report("conv2", 64, 64), report("conv3", 64, 8)]
    assert coverage_warnings(reports, DLU) == [
        "conv1 and conv3: never sampled: channels 1, 3, 5 and 7 (4 of 8), images 1, 3, 5 and 29 more (32 of 64); "
        "thinned-rotated with x = 2, y = 8, shift = 1 would sample every channel"
    ]


def test_a_remedy_names_the_rotation_where_it_has_to_change() -> None:
    printed = replace(DLU, allocation=Allocation(rotation=RotationCount.ROUND))
    (warning,) = coverage_warnings([report("fc", 64, 2048, printed)], printed)
    assert warning.endswith("; rotated with shift = 1, rotation = global would sample every channel")


def test_a_rotation_that_goes_on_leaves_nothing_out() -> None:
    on = replace(DLU, allocation=Allocation(rotation=RotationCount.CONTINUOUS))
    assert coverage_warnings([report("conv1", 64, 8, on)], on) == []


def test_images_alone_have_no_remedy() -> None:
    (warning,) = coverage_warnings([report("fc", 64, 10)], DLU)
    assert warning.startswith("fc: never sampled: images 2, 5, 7 and 21 more (24 of 64)")
    assert "would sample" not in warning


def test_an_array_without_statistics_is_one_warning() -> None:
    blind = replace(DLU, statistics_pes=())
    warnings = coverage_warnings([report("conv1", 64, 8, blind), report("conv2", 64, 8, blind)], blind)
    assert len(warnings) == 1
    assert "no statistics PEs" in warnings[0]


def test_rows_of_a_gradient_of_parameters_are_output_channels() -> None:
    workload = Workload("fc.weight.grad", 8, 1, 1, 1, 1, 1, 1, rows=64)
    (warning,) = coverage_warnings([report_layer(schedule_layer("fc.weight.grad", 64, 8, DLU), workload, DLU)], DLU)
    assert warning.startswith(
        "fc.weight.grad: never sampled: input channels 1, 3, 5 and 7 (4 of 8), output channels 1, 3, 5 and 29 more"
    )
