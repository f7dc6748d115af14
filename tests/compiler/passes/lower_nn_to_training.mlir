// Declarations first; a batch normalisation becomes sums, coefficients of the host and an affine operation.
// RUN: binpoint opt %s -p 'lower-nn-to-training{accumulator-bits=48 target=tests batch=32 coefficient-bits=12 scale-exponent=4}'

nn.network @net numeric = <activations = 8b, biases = 14b, gradients = 16b, exponent = tensor, rounding = floor, update = <msb-max>, constants = 8b, range = [-9, 9], layers = {"fc" = <gradients = 6b, exponent = tensor, rounding = half-up, update = <fixed>, constants = 8b, range = [-8, 8]>}> {
  %image = nn.input "image" : tensor<?x2x1x1xf32>
  %gamma = nn.parameter "norm.gamma" : tensor<2xf32>
  %beta = nn.parameter "norm.beta" : tensor<2xf32>
  %mean = nn.parameter "norm.mean" : tensor<2xf32>
  %variance = nn.parameter "norm.variance" : tensor<2xf32>
  %norm = nn.batch_norm "norm" (%image, %gamma, %beta, %mean, %variance) epsilon = 1/1000 : tensor<?x2x1x1xf32>
  %w = nn.parameter "fc.weight" : tensor<3x2xf32>
  %fc = nn.linear "fc" (%norm, %w) : tensor<?x3x1x1xf32>
  %loss = nn.cross_entropy "loss" (%fc) : tensor<?x3x1x1xf32>
  nn.output (%loss)
}

// CHECK:       fx.training @net numeric = <activations = 8b, biases = 14b, gradients = 16b, {{.*}}>, batch = 32, target = "tests" {
// CHECK-NEXT:    %image = fx.input "image" exponent = <msb-max, range = [-9, 9]> : !fx.tensor<?x2x1x1, 8b, exp = tensor>
// CHECK-NEXT:    %norm.gamma = fx.parameter "norm.gamma" exponent = <msb-max, range = [-9, 9]> : !fx.tensor<2, 14b, exp = tensor>
// CHECK-NEXT:    %norm.beta = fx.parameter "norm.beta" exponent = <msb-max, range = [-9, 9]> : !fx.tensor<2, 14b, exp = tensor>
// CHECK-NEXT:    %fc.weight = fx.parameter "fc.weight" exponent = <fixed, range = [-8, 8]> : !fx.tensor<3x2x1x1, 8b, exp = tensor>
// CHECK-NEXT:    fx.phase forward
// CHECK-NEXT:    %norm.sums = fx.channel_sums "norm.sums" (%image) terms = [0, 0 * 0] : !fx.acc<2x2, 64b>
// CHECK-NEXT:    %norm.scale, %norm.shift = fx.host.batch_norm "norm" (%norm.sums, %norm.gamma, %norm.beta) float64, exponent = <msb-max, range = [-9, 9]>, epsilon = 1/1000 : !fx.tensor<1x2x1x1, 12b, exp = tensor>, !fx.tensor<2, 14b, exp = tensor>
// CHECK-NEXT:    %norm.acc = fx.channel_affine (%image, %norm.scale) layers = ["norm"], on_overflow = saturate : !fx.acc<?x2x1x1, 48b>
// CHECK-NEXT:    %norm.biased = fx.bias (%norm.acc, %norm.shift) : !fx.acc<?x2x1x1, 48b>
// CHECK-NEXT:    %norm = fx.quantize (%norm.biased) rounding = floor, exponent = <msb-max, range = [-9, 9]> : !fx.tensor<?x2x1x1, 8b, exp = tensor>
// CHECK-NEXT:    %fc.acc = fx.linear (%norm, %fc.weight) layers = ["fc"], on_overflow = saturate : !fx.acc<?x3x1x1, 48b>
// CHECK-NEXT:    %fc = fx.quantize (%fc.acc) rounding = half-up, exponent = <fixed, range = [-8, 8]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>

// The gradient of the logits has the format of the layer that makes them.
// CHECK-NEXT:    fx.phase loss
// CHECK-NEXT:    %fc.grad = fx.host.softmax_cross_entropy "fc.grad" (%fc) float64, exponent = <fixed, range = [-8, 8]>, scale_exponent = 4 : !fx.tensor<?x3x1x1, 6b, exp = tensor>
// CHECK-NEXT:  }
