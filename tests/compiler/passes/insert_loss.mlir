// The one loss of the network stays, whatever else leaves; a softmax before it is part of it. Others may read it.
// RUN: binpoint opt %s -p insert-loss

nn.network @net numeric = <exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, constants = 8b, range = [-128, 127]> {
  %image = nn.input "image" : tensor<?x10x1x1xf32>
  %soft = nn.softmax "soft" (%image) : tensor<?x10x1x1xf32>
  %loss = nn.cross_entropy "loss" (%soft) : tensor<?x10x1x1xf32>
  %relu = nn.relu "relu" (%loss) : tensor<?x10x1x1xf32>
  nn.output (%relu, %soft)
}

// CHECK:       %image = nn.input "image"
// CHECK-NEXT:  %soft = nn.softmax "soft" (%image)
// CHECK-NEXT:  %relu = nn.relu "relu" (%soft)
// CHECK-NEXT:  %loss = nn.cross_entropy "loss" (%image) folds = ["soft"] : tensor<?x10x1x1xf32>
// CHECK-NEXT:  nn.output (%loss)
// CHECK-NEXT:  }

// Without a loss, the one output is the logits, or their softmax; the loss gets a name that is free.
nn.network @logits numeric = <exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, constants = 8b, range = [-128, 127]> {
  %image = nn.input "image" : tensor<?x10x1x1xf32>
  %loss = nn.relu "loss" (%image) : tensor<?x10x1x1xf32>
  nn.output (%loss)
}

// CHECK:       %loss = nn.relu "loss" (%image)
// CHECK-NEXT:  [[LOSS:%[a-z.]+]] = nn.cross_entropy "loss.loss" (%loss) : tensor<?x10x1x1xf32>
// CHECK-NEXT:  nn.output ([[LOSS]])
