// The gradient of a parameter sums over the mini-batch, that of data over the filters that met an element.
// RUN: binpoint opt %s -p prove-accumulators

fx.training @net numeric = <exponent = tensor, rounding = half-even, update = <msb-max>, constants = 8b, range = [-128, 127]>, batch = 64 {
  %x = fx.input "x" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x4x8x8, 8b, exp = tensor>
  %dy = fx.input "dy" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x16x4x4, 8b, exp = tensor>
  %v = fx.input "v" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
  %w = fx.parameter "conv.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<16x4x3x3, 8b, exp = tensor>
  fx.phase forward
  %s = fx.channel_sums "s" (%x) terms = [0, 0 * 0] : !fx.acc<2x4, 64b>
  fx.phase loss
  %dv = fx.host.softmax_cross_entropy "dv" (%v) float64, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
  fx.phase backward
  %a = fx.conv2d_weight_gradient (%x, %dy) kernel = 3x3, stride = 2x2, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<16x4x3x3, 40b>
  %b = fx.conv2d_data_gradient (%dy, %w) kernel = 3x3, stride = 2x2, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x4x8x8, 24b>
  %c = fx.bias_gradient (%dy) on_overflow = saturate : !fx.acc<16, 16b>
}

// 64 * 64 mantissas of 8 bits; their squares.
// CHECK:       fx.channel_sums "s" (%x) terms = [0, 0 * 0], needed = 28b
// 64 * 16 products of 8 and 8 bits.
// CHECK:       fx.conv2d_weight_gradient {{.*}}overflow = impossible, needed = 26b
// At a stride of 2, 2 x 2 positions of each of 16 filters.
// CHECK-NEXT:  fx.conv2d_data_gradient {{.*}}overflow = impossible, needed = 22b
// CHECK-NEXT:  fx.bias_gradient {{.*}}overflow = possible, needed = 18b
