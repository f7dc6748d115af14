// What figs. 5A, 5B and 5C of JP7819764B2 count, and 1x1 blocks, which are as many as floating point has exponents.
// RUN: binpoint opt %s -p count-positions

fx.program @net {
  %image = fx.input "image" exponent = <msb-max, range = [-128, 127]>, blocks = <analyse, candidates = 4> : !fx.tensor<?x2x32x32, 8b, exp = block<4x4>>
  %w = fx.parameter "w" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<2x2x3x3, 8b, exp = tensor>
  %a = fx.conv2d (%image, %w) kernel = 3x3, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x2x32x32, 40b>
  %y = fx.quantize (%a) rounding = half-even, exponent = <msb-max, range = [-128, 127]>, blocks = <analyse, candidates = 4> : !fx.tensor<?x2x32x32, 8b, exp = block<4x4>>
  %b = fx.conv2d (%y, %w) kernel = 3x3, stride = 2x2, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x2x16x16, 40b>
  %z = fx.quantize (%b) rounding = half-even, exponent = <msb-max, range = [-128, 127]>, blocks = <predict, neighbours = [left], threshold = 5/2> : !fx.tensor<?x2x16x16, 8b, exp = block<2x2>>
  %c = fx.conv2d (%z, %w) kernel = 3x3, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x2x16x16, 40b>
  %v = fx.quantize (%c) rounding = half-even, exponent = <msb-max, range = [-128, 127]>, blocks = <analyse, positions = [6, 5]> : !fx.tensor<?x2x16x16, 8b, exp = channel-block<1x1>>
  %d = fx.conv2d (%v, %w) kernel = 3x3, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x2x16x16, 40b>
  %u = fx.quantize (%d) rounding = half-even, exponent = <msb-max, range = [-128, 127]>, blocks = <analyse> : !fx.tensor<?x2x16x16, 8b, exp = tensor>
  %e = fx.conv2d (%u, %w) kernel = 3x3, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x2x16x16, 40b>
  %t = fx.quantize (%e) rounding = half-even, exponent = <msb-max, range = [-128, 127]>, blocks = <analyse> : !fx.tensor<?x2x16x16, 8b, exp = tensor>
  fx.output (%t)
}

// CHECK:  %a = fx.conv2d (%image, %w) positions = [4 of 3x3, 9 of 6x6], kernel = 3x3, padding
// CHECK:  %b = fx.conv2d (%y, %w) positions = [4 of 3x3, 9 of 6x6], kernel = 3x3, stride = 2x2
// CHECK:  blocks = <predict, measure = overflows, candidates = 8, neighbours = [left], threshold = 5/2, alignment = fraction>
// CHECK:  %c = fx.conv2d (%z, %w) positions = [4 of 3x3, 16 of 6x6]
// CHECK:  blocks = <analyse, measure = overflows, positions = [6, 5], alignment = fraction>
// CHECK:  %d = fx.conv2d (%v, %w) positions = [9 of 3x3, 36 of 6x6]
// CHECK:  %e = fx.conv2d (%u, %w) kernel = 3x3
