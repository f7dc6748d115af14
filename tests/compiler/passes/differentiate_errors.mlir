// A softmax within a network has no gradient.
// RUN: not binpoint opt %s -p differentiate

fx.training @net numeric = <exponent = tensor, rounding = half-even, update = <msb-max>, constants = 8b, range = [-128, 127]>, batch = 4 {
  %image = fx.input "image" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
  %w = fx.parameter "fc.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3x3x1x1, 8b, exp = tensor>
  fx.phase forward
  %fc = fx.kernel "fc" layers = ["fc"] {
    %0 = fx.linear (%image, %w) on_overflow = saturate : !fx.acc<?x3x1x1, 40b>
    %1 = fx.quantize (%0) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
    fx.yield (%1)
  } : !fx.tensor<?x3x1x1, 8b, exp = tensor>
  %soft = fx.kernel "soft" layers = ["soft"] {
    %2 = fx.softmax (%fc) on_overflow = saturate : !fx.acc<?x3x1x1, 40b>
    %3 = fx.quantize (%2) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
    fx.yield (%3)
  } : !fx.tensor<?x3x1x1, 8b, exp = tensor>
  fx.phase loss
  %loss = fx.host.softmax_cross_entropy "loss" (%soft) float64, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
}

// CHECK:       error[no-gradient]: "soft" cannot be trained through: fx.softmax has no gradient
// CHECK-NEXT:  differentiate_errors.mlir:14:21
// CHECK-NEXT:  hint:     softmax as the last layer is part of the loss
