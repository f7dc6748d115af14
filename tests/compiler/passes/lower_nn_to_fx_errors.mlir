// What has no fixed-point form is refused with its place.
// RUN: not binpoint opt %s -p lower-nn-to-fx

nn.network @net numeric = <exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, constants = 8b, range = [-128, 127]> {
  %image = nn.input "image" : tensor<?x10x1x1xf32>
  %loss = nn.cross_entropy "loss" (%image) : tensor<?x10x1x1xf32>
  nn.output (%loss)
}

// CHECK:       error[not-lowered]: nn.cross_entropy "loss" has no fixed-point form
// CHECK-NEXT:  lower_nn_to_fx_errors.mlir:6:28
// CHECK:       hint:     run strip-loss and fold-batch-norm before lower-nn-to-fx
