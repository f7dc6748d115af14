// The passes together, as the compiler runs them.
// RUN: binpoint opt %s -p strip-loss,fold-batch-norm,canonicalize,lower-nn-to-fx,fuse-activations,prove-accumulators,insert-statistics,outline-kernels

nn.network @net numeric = <exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, constants = 8b, range = [-128, 127]> {
  %image = nn.input "image" : tensor<?x1x8x8xf32>
  %w = nn.parameter "conv.weight" : tensor<4x1x3x3xf32>
  %conv = nn.conv2d "conv" (%image, %w) kernel = 3x3 : tensor<?x4x6x6xf32>
  %g = nn.parameter "bn.gamma" : tensor<4xf32>
  %b = nn.parameter "bn.beta" : tensor<4xf32>
  %m = nn.parameter "bn.mean" : tensor<4xf32>
  %v = nn.parameter "bn.variance" : tensor<4xf32>
  %bn = nn.batch_norm "bn" (%conv, %g, %b, %m, %v) epsilon = 1/100000 : tensor<?x4x6x6xf32>
  %relu = nn.relu "relu" (%bn) : tensor<?x4x6x6xf32>
  %loss = nn.cross_entropy "loss" (%relu) : tensor<?x4x6x6xf32>
  nn.output (%loss)
}

// CHECK:       fx.program @net {
// CHECK-NEXT:    %image = fx.input "image"
// CHECK-NEXT:    %conv.weight = fx.parameter "conv.weight"
// CHECK-NEXT:    %conv.bias = fx.parameter "conv.bias"
// CHECK-NEXT:    %conv = fx.kernel "conv" layers = ["conv", "bn", "relu"] {
// CHECK-NEXT:      %conv.acc = fx.conv2d (%image, %conv.weight) kernel = 3x3, on_overflow = saturate, overflow = impossible, needed = 19b
// CHECK-NEXT:      %conv.biased = fx.bias (%conv.acc, %conv.bias) safe_shift = 23
// CHECK-NEXT:      %relu.acc = fx.relu (%conv.biased)
// CHECK-NEXT:      fx.stats (%relu.acc) acquires = [msb, lsb]
// CHECK-NEXT:      %conv.out = fx.quantize (%relu.acc)
// CHECK-NEXT:      fx.yield (%conv.out)
// CHECK-NEXT:    }
// CHECK-NEXT:    fx.output (%conv)
