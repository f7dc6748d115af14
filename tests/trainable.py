"""Networks that can be trained, for tests of training: one of every layer kind, and any network with a head."""

from binpoint.compiler.layers import LAYER_KINDS
from binpoint.compiler.network import Layer, NetworkGraph, normalize_attributes

EVERY_LAYER = """
network every {
  input image: 4x9x8 { scale = 1/255 mean = 0.5 deviation = 0.25 }
  pre = max_pool(image, kernel=2, stride=1)
  conv = conv2d(pre, channels=6, kernel=3x2, stride=2x1, padding=[1, 0, 2, 1], groups=2, dilation=1x2)
  norm = batch_norm(conv)
  act = relu(norm)
  deep = depthwise(act, kernel=3, multiplier=2, padding=1, bias=false)
  six = relu6(deep)
  apart = batch_norm(six, epsilon=0.01)
  pooled = max_pool(apart, kernel=2, padding=1)
  mean = avg_pool(pooled, kernel=3, stride=2, padding=1)
  counted = avg_pool(pooled, kernel=3, stride=2, padding=1, include_padding=true)
  sum = add(mean, counted, counted)
  leaky = leaky_relu(sum, slope=0.125)
  up = upsample(leaky, scale=2x3)
  sized = resize(up, size=3x3)
  joined = concat(sized, resize(pooled, size=3x3), resize(image, size=3x3))
  gated = sigmoid(joined)
  cut = relu(gated)
  shaped = reshape(flatten(cut), shape=28x3x3)
  biggest = global_max_pool(shaped)
  average = global_avg_pool(shaped)
  both = add(biggest, average)
  hidden = leaky_relu(linear(both, features=7))
  aside = linear(hidden, features=2)
  fc = linear(hidden, features=5)
  soft = softmax(fc)
  loss = cross_entropy(soft)
  output loss
}
"""
"""Some layers are read twice, `counted` by one layer; `pre` lies before all parameters, `aside` beside the loss."""


def with_head(network: NetworkGraph) -> NetworkGraph:
    """The network with a linear layer on the means of its last layer as its one output, and no loss of its own."""
    layers = [network.layers[name] for name in network.order]
    # What has no gradient is replaced: a softmax within a network, and losses.
    layers = [Layer(each.name, "relu", each.inputs) if each.kind in UNTRAINED else each for each in layers]
    last = layers[-1].name
    pool = Layer("head.means", "global_avg_pool", (last,), normalize_attributes("global_avg_pool", {}))
    head = Layer("head.linear", "linear", (pool.name,), normalize_attributes("linear", {"features": 3}))
    inputs = list(network.inputs.values())
    return NetworkGraph(network.name, inputs, [*layers, pool, head], [head.name], network.numeric, network.weights)


UNTRAINED = ("softmax", "cross_entropy")

assert set(UNTRAINED) <= set(LAYER_KINDS)
