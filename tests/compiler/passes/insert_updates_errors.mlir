// Updates follow gradients.
// RUN: not binpoint opt %s -p insert-updates

fx.training @net numeric = <master_weights = 24b, exponent = tensor, rounding = floor, update = <msb-max>, constants = 8b, range = [-9, 9], exponents = {"fc.bias.master" = -7}>, batch = 4 {
  %image = fx.input "image" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x4x1x1, 8b, exp = tensor>
  %w = fx.parameter "fc.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3x4x1x1, 8b, exp = tensor>
  %b = fx.parameter "fc.bias" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3, 16b, exp = tensor>
  %other = fx.parameter "other" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3, 16b, exp = tensor>
  fx.phase forward
  %fc = fx.kernel "fc" layers = ["fc"] {
    %0 = fx.linear (%image, %w) on_overflow = saturate : !fx.acc<?x3x1x1, 40b>
    %1 = fx.bias (%0, %b) : !fx.acc<?x3x1x1, 40b>
    %2 = fx.quantize (%1) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
    fx.yield (%2)
  } : !fx.tensor<?x3x1x1, 8b, exp = tensor>
  fx.phase loss
  %loss = fx.host.softmax_cross_entropy "fc.grad" (%fc) float64, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
}

// CHECK:       error[no-gradients]: updates are inserted once, behind gradients
// CHECK-NEXT:  insert_updates_errors.mlir:4:13
// CHECK-NEXT:  hint:     run differentiate
