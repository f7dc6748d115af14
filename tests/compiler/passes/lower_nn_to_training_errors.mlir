// One label an image: the logits are a vector.
// RUN: not binpoint opt %s -p lower-nn-to-training

nn.network @net numeric = <exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, constants = 8b, range = [-128, 127]> {
  %image = nn.input "image" : tensor<?x10x2x2xf32>
  %loss = nn.cross_entropy "loss" (%image) : tensor<?x10x2x2xf32>
  nn.output (%loss)
}

// CHECK:       error[no-vector]: the loss "loss" reads a feature map
// CHECK-NEXT:  lower_nn_to_training_errors.mlir:6:28
// CHECK-NEXT:  found:    10x2x2
// CHECK-NEXT:  expected: H = W = 1: one label an image
