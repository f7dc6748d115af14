// Accumulators that leave the chain make no kernel.
// RUN: not binpoint opt %s -p outline-kernels

fx.program @net {
  %image = fx.input "image" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %a = fx.widen (%image) layers = ["relu"], on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %b = fx.quantize (%a) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %c = fx.quantize (%a) rounding = floor, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  fx.output (%b, %c)
}

// CHECK:       error[not-a-kernel]: the operations that lead to this fx.quantize make no kernel: its accumulators are used elsewhere
// CHECK-NEXT:  outline_kernels_errors.mlir:7:20
