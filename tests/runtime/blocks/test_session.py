"""Sessions over blocks: equal to plain ones where every map has one exponent, and what each method decides."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from binpoint.backends.oracle.backend import OracleBackend
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.parameters import draw_parameters
from binpoint.compiler.pipeline import CompileOptions, compile_network
from binpoint.runtime.blocks.methods import Method, program_for
from binpoint.runtime.blocks.session import BlockSession
from binpoint.runtime.calibration import trial_records
from binpoint.runtime.controllers import FixedController
from binpoint.runtime.execution import LayerExecutor
from binpoint.runtime.session import Session
from binpoint.support.numeric import Granularity, Rounding
from binpoint.support.target_file import load_target
from tests.programs import TARGET, artifact_of, branches, classifier, images_for

NETWORK = """
network n {
  input image: 2x9x9 { scale = 1/256 }
  a = relu(conv2d(image, channels=4, kernel=3, padding=1))
  b = leaky_relu(conv2d(a, channels=4, kernel=3, padding=1, stride=2), slope=0.1)
  p = max_pool(a, kernel=2, stride=1)
  u = upsample(max_pool(b, kernel=1), scale=2)
  c = concat(u, conv2d(a, channels=2, kernel=1, padding=[0, 0, 1, 1]))
  d = avg_pool(c, kernel=5)
  fc = linear(flatten(d), features=3)
  output fc, p
}
"""


def compiled(numeric="", target="block16", network=NETWORK):
    graph = parse_network_text(f"{network}\nnumeric {{ {numeric} }}", "n.bp", None)
    target = load_target(target) if isinstance(target, str) else target
    return compile_network(graph, draw_parameters(graph, 1), target, CompileOptions(4)).artifact()


def images(count, scale=1.0, seed=0):
    return {"image": (np.random.default_rng(seed).normal(size=(count, 2, 9, 9)) * scale).astype(np.float32)}


def plain(artifact, inputs, seed=0):
    controller = FixedController(artifact.program, artifact.floats, artifact.exponents)
    executor = LayerExecutor(OracleBackend(), artifact.program, artifact.mantissas)
    session = Session(artifact, executor, controller, seed=seed, statistics=False)
    return session, session.run(inputs)


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("program", [classifier, branches])
def test_one_calibrated_exponent_a_map_is_the_plain_session(program, rounding):
    artifact = artifact_of(program(rounding))
    inputs = images_for(artifact.program, 3)
    session, result = plain(artifact, inputs, seed=5)
    blocks = BlockSession(artifact, OracleBackend(), Method.FIXED, seed=5)
    found = blocks.run(inputs)
    for name, output in result.outputs.items():
        assert np.array_equal(found.outputs[name].mantissas, output.mantissas)
        assert np.array_equal(found.outputs[name].values, output.values)
    before, after = (*session.inputs, *session.layers), (*blocks.inputs, *blocks.layers)
    assert [(each.name, each.exponent, each.events) for each in before] == [
        (each.name, each.exponent, each.events) for each in after
    ]


def test_weights_per_channel_at_equal_exponents_are_the_plain_session():
    artifact = artifact_of(classifier())
    inputs = images_for(artifact.program, 2)
    _, result = plain(artifact, inputs)
    channels = {
        name: (artifact.exponents[name],) * len(artifact.mantissas[name]) for name in ("conv.weight", "fc.weight")
    }
    shared = {name: exponent for name, exponent in artifact.exponents.items() if name not in channels}
    blocks = BlockSession(
        replace(artifact, exponents=shared, channel_exponents=channels), OracleBackend(), Method.FIXED
    )
    assert np.array_equal(blocks.run(inputs).outputs["fc"].mantissas, result.outputs["fc"].mantissas)


@pytest.mark.parametrize("target", ["block16", "block16-neighbour"])
@pytest.mark.parametrize(
    "numeric",
    [
        "",
        "exponent = channel-block<4x4>  weights = 8 bits per channel",
        "exponent = block<2x3>  blocks = analyse(alignment = integer, measure = mse)",
        "exponent = channel  activations = 6 bits",
        "blocks = analyse(positions = [9, 7, 5, 3])  layer a { exponent = tensor }",
    ],
)
def test_blocks_are_near_the_float_network_whatever_the_batch(target, numeric):
    artifact = compiled(numeric, target)
    session = BlockSession(artifact, OracleBackend(), Method.BLOCKS, compare=True)
    inputs = images(3)
    whole = session.run(inputs).outputs
    for report in session.layers:
        # A prediction that tolerates 10 overflows in a block of 16 numbers of one channel may lose most of them.
        assert report.snr_db > (12 if target == "block16" else 0)
        assert report.images == 3
        assert sum(report.shares.values()) == pytest.approx(1)
    # The same calibration, image by image.
    single = BlockSession(artifact, OracleBackend(), Method.BLOCKS)
    single.warm_up(inputs)
    for index in range(3):
        outputs = single.run({"image": inputs["image"][index : index + 1]}).outputs
        for name, output in outputs.items():
            assert np.array_equal(output.values[0], whole[name].values[index])


def test_chosen_exponents_are_candidates():
    artifact = compiled("blocks = analyse(candidates = 3)")
    session = BlockSession(artifact, OracleBackend(), Method.BLOCKS)
    session.run(images(2))
    for report in (*session.inputs, *session.layers):
        if report.candidates is not None:
            coarsest = report.candidates.exponents[0]
            assert report.candidates.exponents == (coarsest, coarsest - 1, coarsest - 2)
            assert report.candidates.position_bits == 2
            assert set(report.blocks) <= set(report.candidates.exponents)
            assert report.position_bits_per_frame == 2 * report.blocks_per_frame


def frames():
    """A quiet frame after two loud ones."""
    return {"image": np.concatenate([images(2, 4.0)["image"], images(2, 0.125, 1)["image"]])}


def exponents_of(session, name="image"):
    return next(report for report in (*session.inputs, *session.layers) if report.name == name).blocks


def test_the_previous_frame_decides_one_late_image_by_image():
    artifact = compiled("activations = 8 bits")
    together = BlockSession(artifact, OracleBackend(), Method.FRAME)
    together.run(frames())
    apart = BlockSession(artifact, OracleBackend(), Method.FRAME)
    apart.warm_up(frames())
    seen = []
    for index in range(4):
        apart.run({"image": frames()["image"][index : index + 1]})
        seen.append(apart.inputs[0].exponent)
    loud, quiet = seen[1], seen[3]
    # The first quiet frame still has the exponent of the loud one before it.
    assert seen[2] == loud
    assert quiet < loud
    assert exponents_of(together) == exponents_of(apart)
    assert [each.events for each in together.layers] == [each.events for each in apart.layers]


def test_the_current_frame_decides_without_delay():
    artifact = compiled()
    session = BlockSession(artifact, OracleBackend(), Method.CURRENT)
    session.warm_up(frames())
    seen = []
    for index in range(4):
        session.run({"image": frames()["image"][index : index + 1]})
        seen.append(session.inputs[0].exponent)
    assert seen[2] == seen[3] < seen[1]
    # A frame does not know what came before it.
    backwards = BlockSession(artifact, OracleBackend(), Method.CURRENT)
    backwards.warm_up(frames())
    backwards.run({"image": frames()["image"][3:]})
    assert backwards.inputs[0].exponent == seen[3]


def test_methods_other_than_blocks_have_one_exponent_a_map():
    artifact = compiled()
    program = program_for(artifact.program, Method.FRAME)
    assert {call.spec.output.granularity for call in program.calls} == {Granularity()}
    assert all(call.spec.exact == call.spec.operation.exact for call in program.calls)
    assert any(call.spec.operation.exact and not call.spec.exact for call in artifact.program.calls)
    with pytest.raises(ValueError, match="knows no blocks"):
        program_for(artifact_of(classifier()).program, Method.BLOCKS)


def test_candidates_of_blocks_begin_where_the_largest_value_fits():
    artifact = compiled("update = msb-histogram(r_max = 1/10)")
    inputs = {"image": images(1)["image"] * np.float32(2**-9)}
    inputs["image"][0, 0, 0, 0] = 100.0
    blocks = BlockSession(artifact, OracleBackend(), Method.BLOCKS)
    layer = BlockSession(artifact, OracleBackend(), Method.FIXED)
    blocks.run(inputs)
    layer.run(inputs)
    chosen, calibrated = blocks.inputs[0].candidates, layer.inputs[0].candidates.default
    assert chosen.exponents[0] == 0
    assert calibrated < -6
    assert chosen.default == max(calibrated, chosen.exponents[-1])


def test_records_take_the_place_of_a_trial():
    artifact = compiled()
    records = trial_records(artifact.program, artifact.floats, images(1, 8.0))
    given, tried = (BlockSession(artifact, OracleBackend(), Method.BLOCKS, records=each) for each in (records, None))
    given.run(images(1))
    tried.run(images(1, 8.0))
    assert [report.candidates for report in given.layers] == [report.candidates for report in tried.layers]


def test_an_exponent_out_of_its_range_is_counted():
    artifact = compiled("exponent_range = [-6, 20]")
    session = BlockSession(artifact, OracleBackend(), Method.BLOCKS)
    session.run(images(1, 1e-3))
    assert session.clamps["image"] == 1
    assert session.inputs[0].candidates.exponents == (-6,)


def test_plain_programs_take_the_methods_of_frames():
    artifact = artifact_of(branches(), TARGET)
    session = BlockSession(artifact, OracleBackend(), Method.FRAME, compare=True)
    session.run(images_for(artifact.program, 2))
    assert all(report.snr_db > 15 for report in session.layers)
    assert all(len(report.candidates.exponents) == 8 for report in session.layers if report.candidates is not None)
    assert session.program.calls[0].spec.blocks.threshold == Fraction(10)
