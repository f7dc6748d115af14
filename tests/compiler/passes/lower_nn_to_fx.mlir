// Every layer becomes operations of its own; formats come from the network, then from the options.
// RUN: binpoint opt %s -p 'lower-nn-to-fx{accumulator-bits=48 accumulator-wraps=true target=tests}'

nn.network @net numeric = <activations = 8b, biases = 12b, exponent = tensor, rounding = floor, update = <msb-max>, constants = 8b, range = [-9, 9], exponents = {"conv" = -3, "conv.weight" = -5}, layers = {"conv" = <activations = 16b, weights = 4b, exponent = channel, weight_exponent = channel, rounding = half-up, update = <fixed>, constants = 6b, range = [-8, 8]>}> {
  %image = nn.input "image" mean = [1/2] : tensor<?x2x4x4xf32>
  %w = nn.parameter "conv.weight" : tensor<4x2x1x1xf32>
  %b = nn.parameter "conv.bias" : tensor<4xf32>
  %conv = nn.conv2d "conv" (%image, %w, %b) kernel = 1x1, folds = ["bn"] : tensor<?x4x4x4xf32>
  %leaky = nn.leaky_relu "leaky" (%conv) slope = 300 : tensor<?x4x4x4xf32>
  %six = nn.relu6 "six" (%image) : tensor<?x2x4x4xf32>
  %pool = nn.avg_pool "pool" (%six) include_padding, kernel = 3x3, stride = 2x2, padding = [1, 1, 1, 1] : tensor<?x2x2x2xf32>
  %gap = nn.global_avg_pool "gap" (%pool) : tensor<?x2x1x1xf32>
  %max = nn.global_max_pool "max" (%leaky) : tensor<?x4x1x1xf32>
  %cat = nn.concat "cat" (%gap, %max) : tensor<?x6x1x1xf32>
  %up = nn.upsample "up" (%cat) scale = 2x1 : tensor<?x6x2x1xf32>
  %flat = nn.flatten "flat" (%up) : tensor<?x12x1x1xf32>
  %fw = nn.parameter "fc.weight" : tensor<5x12xf32>
  %fc = nn.linear "fc" (%flat, %fw) : tensor<?x5x1x1xf32>
  %sigmoid = nn.sigmoid "sigmoid" (%fc) : tensor<?x5x1x1xf32>
  nn.output (%sigmoid)
}

// CHECK:       fx.program @net target = "tests" {
// CHECK-NEXT:    %image = fx.input "image" exponent = <msb-max, range = [-9, 9]>, mean = [1/2] : !fx.tensor<?x2x4x4, 8b, exp = tensor>
// CHECK-NEXT:    %conv.weight = fx.parameter "conv.weight" exponent = <msb-max, range = [-8, 8], initial = -5> : !fx.tensor<4x2x1x1, 4b, exp = channel>
// CHECK-NEXT:    %conv.acc = fx.conv2d (%image, %conv.weight) kernel = 1x1, layers = ["conv", "bn"], on_overflow = wrap : !fx.acc<?x4x4x4, 48b>
// CHECK-NEXT:    %conv.bias = fx.parameter "conv.bias" exponent = <msb-max, range = [-8, 8]> : !fx.tensor<4, 16b, exp = tensor>
// CHECK-NEXT:    %conv.biased = fx.bias (%conv.acc, %conv.bias) : !fx.acc<?x4x4x4, 48b>
// CHECK-NEXT:    %conv = fx.quantize (%conv.biased) rounding = half-up, exponent = <fixed, range = [-8, 8], initial = -3> : !fx.tensor<?x4x4x4, 16b, exp = channel>

// An activation without a policy follows the layer before: 16 bits, 6-bit constants. 300 is 38 * 2^3 at 6 bits.
// CHECK-NEXT:    %leaky.wide = fx.widen (%conv) layers = ["leaky"], on_overflow = wrap : !fx.acc<?x4x4x4, 48b>
// CHECK-NEXT:    %leaky.acc = fx.leaky_relu (%leaky.wide) slope = 304 * 2^-0 for 300, layers = ["leaky"]
// CHECK-NEXT:    %leaky = fx.quantize (%leaky.acc) rounding = half-up, exponent = <fixed, range = [-8, 8]> : !fx.tensor<?x4x4x4, 16b, exp = channel>
// CHECK-NEXT:    %six.wide = fx.widen (%image)
// CHECK-NEXT:    %six.acc = fx.clip (%six.wide) limit = 192 * 2^-5, layers = ["six"]
// CHECK-NEXT:    %six = fx.quantize (%six.acc) rounding = floor, exponent = <msb-max, range = [-9, 9]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
// CHECK-NEXT:    %pool.acc = fx.avg_pool (%six) include_padding, constants = 8b, reciprocals = [1/9 = 228] * 2^-11, kernel = 3x3, stride = 2x2, padding = [1, 1, 1, 1]
// CHECK-NEXT:    %pool = fx.quantize
// CHECK-NEXT:    %gap.acc = fx.avg_pool (%pool) constants = 8b, reciprocals = [1/4 = 128] * 2^-9, kernel = 2x2, stride = 2x2, layers = ["gap"]
// CHECK-NEXT:    %gap = fx.quantize
// CHECK-NEXT:    %max = fx.max_pool (%leaky) kernel = 4x4, stride = 4x4, layers = ["max"] : !fx.tensor<?x4x1x1, 16b, exp = channel>
// CHECK-NEXT:    %cat.acc = fx.concat (%gap, %max) layers = ["cat"], on_overflow = wrap : !fx.acc<?x6x1x1, 48b>
// CHECK-NEXT:    %cat = fx.quantize
// CHECK-NEXT:    %up = fx.resize (%cat) layers = ["up"] : !fx.tensor<?x6x2x1, 8b, exp = tensor>
// CHECK-NEXT:    %flat = fx.reshape (%up) layers = ["flat"] : !fx.tensor<?x12x1x1, 8b, exp = tensor>
// CHECK-NEXT:    %fc.weight = fx.parameter "fc.weight" exponent = <msb-max, range = [-9, 9]> : !fx.tensor<5x12x1x1, 8b, exp = tensor>
// CHECK-NEXT:    %fc.acc = fx.linear (%flat, %fc.weight) layers = ["fc"], on_overflow = wrap : !fx.acc<?x5x1x1, 48b>
// CHECK-NEXT:    %fc = fx.quantize (%fc.acc)
// CHECK-NEXT:    %sigmoid.acc = fx.sigmoid (%fc) layers = ["sigmoid"]
// CHECK-NEXT:    %sigmoid = fx.quantize
// CHECK-NEXT:    fx.output (%sigmoid)
