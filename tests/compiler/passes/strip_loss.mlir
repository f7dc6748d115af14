// The loss goes, the logits leave in its place; a softmax that is asked for stays.
// RUN: binpoint opt %s -p strip-loss

nn.network @net numeric = <exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, constants = 8b, range = [-128, 127]> {
  %image = nn.input "image" : tensor<?x10x1x1xf32>
  %soft = nn.softmax "soft" (%image) : tensor<?x10x1x1xf32>
  %loss = nn.cross_entropy "loss" (%soft) : tensor<?x10x1x1xf32>
  nn.output (%loss, %soft)
}

// CHECK:       %image = nn.input "image"
// CHECK-NEXT:  %soft = nn.softmax "soft" (%image)
// CHECK-NEXT:  nn.output (%soft, %soft)
