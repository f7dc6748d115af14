builtin.module {
  fx.program @small target = "tests" {
    %image = fx.input "image" exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]>, scale = 1/255 : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    %w = fx.parameter "conv.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<6x2x3x3, 8b, exp = tensor>
    %b = fx.parameter "conv.bias" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<6, 16b, exp = tensor>
    %conv = fx.kernel "conv" layers = ["conv", "leaky"] {
      %0 = fx.conv2d (%image, %w) groups = 2, kernel = 3x3, on_overflow = saturate, overflow = impossible, needed = 20b : !fx.acc<?x6x6x6, 40b>
      %1 = fx.bias (%0, %b) safe_shift = 23 : !fx.acc<?x6x6x6, 40b>
      %2 = fx.leaky_relu (%1) slope = 205 * 2^-11 : !fx.acc<?x6x6x6, 40b>
      fx.stats (%2) acquires = [msb, lsb]
      %3 = fx.quantize (%2) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x6x6x6, 8b, exp = tensor>
      fx.yield (%3)
    } : !fx.tensor<?x6x6x6, 8b, exp = tensor>
    %pool = fx.kernel "pool" layers = ["pool"] {
      %4 = fx.avg_pool (%conv) constants = 8b, reciprocals = [1/4 = 512, 1/6 = 342, 1/9 = 228] * 2^-11, kernel = 3x3, stride = 2x2, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x6x3x3, 40b>
      %5 = fx.quantize (%4) rounding = floor, exponent = <fixed, range = [-128, 127], initial = -3> : !fx.tensor<?x6x3x3, 16b, exp = tensor>
      fx.yield (%5)
    } : !fx.tensor<?x6x3x3, 16b, exp = tensor>
    %max = fx.kernel "max" layers = ["max"] {
      %6 = fx.max_pool (%pool) kernel = 3x3 : !fx.tensor<?x6x1x1, 16b, exp = tensor>
      fx.yield (%6)
    } : !fx.tensor<?x6x1x1, 16b, exp = tensor>
    %sum = fx.kernel "sum" layers = ["sum"] {
      %7 = fx.add (%max, %max) on_overflow = wrap : !fx.acc<?x6x1x1, 48b>
      %8 = fx.quantize (%7) rounding = stochastic, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x6x1x1, 8b, exp = tensor>
      fx.yield (%8)
    } : !fx.tensor<?x6x1x1, 8b, exp = tensor>
    fx.output (%sum, %conv)
  }
}
