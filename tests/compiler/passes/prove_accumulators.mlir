// The width that holds every sum, for each kind of operation.
// RUN: binpoint opt %s -p prove-accumulators

fx.program @net {
  %image = fx.input "image" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %wide = fx.input "wide" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x64x4x4, 16b, exp = tensor>
  %w1 = fx.parameter "conv.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<2x2x3x3, 8b, exp = tensor>
  %w2 = fx.parameter "big.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<2x64x4x4, 16b, exp = tensor>
  %b = fx.parameter "conv.bias" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<2, 16b, exp = tensor>

  // 18 products of at most 2^14: 294,912 takes 20 bits.
  %conv = fx.conv2d (%image, %w1) kernel = 3x3, on_overflow = saturate : !fx.acc<?x2x2x2, 40b>
  // The bias may move 40 - 1 - 16 bits to the left.
  %biased = fx.bias (%conv, %b) : !fx.acc<?x2x2x2, 40b>
  // 1024 products of at most 2^30: 2^40 takes 42 bits.
  %big = fx.conv2d (%wide, %w2) kernel = 4x4, on_overflow = wrap : !fx.acc<?x2x1x1, 40b>
  %nowhere = fx.bias (%big, %b) : !fx.acc<?x2x1x1, 40b>
  // -128 * 9 * 228 takes 20 bits.
  %pool = fx.avg_pool (%image) constants = 8b, reciprocals = [1/9 = 228] * 2^-11, kernel = 3x3, on_overflow = saturate : !fx.acc<?x2x2x2, 40b>
  // Alignment uses all bits but one.
  %sum = fx.add (%image, %image, %image) on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %cat = fx.concat (%image, %image) on_overflow = saturate : !fx.acc<?x4x4x4, 10b>
  %same = fx.widen (%image) on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  // 2^30, the value 1, takes 32 bits.
  %table = fx.sigmoid (%image) on_overflow = saturate : !fx.acc<?x2x4x4, 32b>
  %small = fx.softmax (%image) on_overflow = saturate : !fx.acc<?x2x4x4, 31b>
  fx.output (%image)
}

// CHECK:       fx.conv2d (%image, %w1) {{.*}}overflow = impossible, needed = 20b
// CHECK-NEXT:  fx.bias (%conv, %b) safe_shift = 23 :
// CHECK-NEXT:  fx.conv2d (%wide, %w2) {{.*}}on_overflow = wrap, overflow = possible, needed = 42b
// CHECK-NEXT:  fx.bias (%big, %b) :
// CHECK-NEXT:  fx.avg_pool {{.*}}overflow = impossible, needed = 20b
// CHECK-NEXT:  fx.add {{.*}}overflow = impossible, needed = 39b
// CHECK-NEXT:  fx.concat {{.*}}overflow = impossible, needed = 10b
// CHECK-NEXT:  fx.widen {{.*}}overflow = impossible, needed = 8b
// CHECK-NEXT:  fx.sigmoid {{.*}}overflow = impossible, needed = 32b
// CHECK-NEXT:  fx.softmax {{.*}}overflow = possible, needed = 32b
