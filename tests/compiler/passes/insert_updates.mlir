// Every parameter with a gradient gets a master and a velocity, and is updated; only weights decay.
// RUN: binpoint opt %s -p 'differentiate,insert-updates{momentum=0.9 decay="1/2000"}'

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

// CHECK:       %w = fx.parameter "fc.weight"
// CHECK-NEXT:  %fc.weight.master = fx.parameter "fc.weight.master" exponent = <msb-max, range = [-9, 9]> : !fx.tensor<3x4x1x1, 24b, exp = tensor>
// CHECK-NEXT:  %fc.weight.velocity = fx.parameter "fc.weight.velocity" exponent = <msb-max, range = [-9, 9]> : !fx.tensor<3x4x1x1, 24b, exp = tensor>
// CHECK-NEXT:  %b = fx.parameter "fc.bias"
// CHECK-NEXT:  %fc.bias.master = fx.parameter "fc.bias.master" exponent = <msb-max, range = [-9, 9], initial = -7> : !fx.tensor<3, 24b, exp = tensor>
// CHECK-NEXT:  %fc.bias.velocity = fx.parameter "fc.bias.velocity"
// CHECK-NEXT:  %other = fx.parameter "other"
// CHECK-NEXT:  fx.phase forward

// CHECK:       fx.phase update
// CHECK-NEXT:  fx.update "fc.weight" (%w, %fc.weight.master, %fc.weight.velocity) {
// CHECK-NEXT:    [[V:%[0-9]+]] = fx.momentum (%fc.weight.velocity, %fc.weight.grad, %fc.weight.master) momentum = 58982 * 2^-16, decay = 33554 * 2^-26 : !fx.acc<3x4x1x1, 63b>
// CHECK-NEXT:    %fc.weight.velocity.next = fx.quantize ([[V]]) rounding = floor, exponent = <msb-max, range = [-9, 9]> : !fx.tensor<3x4x1x1, 24b, exp = tensor>
// CHECK-NEXT:    [[W:%[0-9]+]] = fx.descend (%fc.weight.master, %fc.weight.velocity.next) : !fx.acc<3x4x1x1, 63b>
// CHECK-NEXT:    %fc.weight.master.next = fx.quantize ([[W]]) rounding = floor, exponent = <msb-max, range = [-9, 9]> : !fx.tensor<3x4x1x1, 24b, exp = tensor>
// CHECK-NEXT:    [[C:%[0-9]+]] = fx.widen (%fc.weight.master.next) on_overflow = saturate : !fx.acc<3x4x1x1, 63b>
// CHECK-NEXT:    %fc.weight.next = fx.quantize ([[C]]) rounding = floor, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3x4x1x1, 8b, exp = tensor>
// CHECK-NEXT:    fx.store (%fc.weight.next, %fc.weight.master.next, %fc.weight.velocity.next)
// CHECK-NEXT:  }
// CHECK-NEXT:  fx.update "fc.bias" (%b, %fc.bias.master, %fc.bias.velocity) {
// CHECK-NEXT:    {{.*}}fx.momentum (%fc.bias.velocity, %fc.bias.grad) momentum = 58982 * 2^-16 : !fx.acc<3, 63b>
