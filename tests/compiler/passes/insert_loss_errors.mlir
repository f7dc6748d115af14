// It must be clear what the logits are.
// RUN: not binpoint opt %s -p insert-loss

nn.network @net numeric = <exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, constants = 8b, range = [-128, 127]> {
  %image = nn.input "image" : tensor<?x10x1x1xf32>
  %a = nn.relu "a" (%image) : tensor<?x10x1x1xf32>
  nn.output (%a, %image)
}

// CHECK:       error[no-single-loss]: training needs one loss
// CHECK-NEXT:  insert_loss_errors.mlir:7:13
// CHECK-NEXT:  found:    2 outputs
// CHECK-NEXT:  expected: one cross_entropy layer, or one output: the logits
