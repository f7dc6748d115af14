// Without momentum there is no velocity: the master moves against the gradient, and weights decay in the same sum.
// RUN: binpoint opt %s -p 'differentiate,insert-updates{decay=0.5}'

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

// CHECK:       fx.phase update
// CHECK-NEXT:  fx.update "fc.weight" (%w, %fc.weight.master) {
// CHECK-NEXT:    [[W:%[0-9]+]] = fx.descend (%fc.weight.master, %fc.weight.grad) decay = 32768 * 2^-16 : !fx.acc<3x4x1x1, 63b>
// CHECK-NEXT:    %fc.weight.master.next = fx.quantize ([[W]])
// CHECK-NEXT:    [[C:%[0-9]+]] = fx.widen (%fc.weight.master.next)
// CHECK-NEXT:    %fc.weight.next = fx.quantize ([[C]])
// CHECK-NEXT:    fx.store (%fc.weight.next, %fc.weight.master.next)
// CHECK:       fx.update "fc.bias" (%b, %fc.bias.master) {
// CHECK-NEXT:    {{.*}} = fx.descend (%fc.bias.master, %fc.bias.grad) : !fx.acc<3, 63b>
