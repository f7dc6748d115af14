// Layers that change nothing go, the layer before takes their names; what nobody reads goes with its parameters.
// RUN: binpoint opt %s -p canonicalize

nn.network @net numeric = <exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, constants = 8b, range = [-128, 127]> {
  %image = nn.input "image" : tensor<?x4x2x2xf32>
  %pool = nn.max_pool "pool" (%image) kernel = 1x1 : tensor<?x4x2x2xf32>
  %up = nn.upsample "up" (%pool) scale = 1x1 : tensor<?x4x2x2xf32>
  %relu = nn.relu "relu" (%up) : tensor<?x4x2x2xf32>
  %again = nn.relu "again" (%relu) : tensor<?x4x2x2xf32>
  %skips = nn.max_pool "skips" (%again) kernel = 1x1, stride = 2x2 : tensor<?x4x1x1xf32>
  %six = nn.relu6 "six" (%skips) : tensor<?x4x1x1xf32>
  %sixes = nn.relu6 "sixes" (%six) : tensor<?x4x1x1xf32>
  %square = nn.reshape "square" (%sixes) shape = 1x2x2 : tensor<?x1x2x2xf32>
  %flat = nn.flatten "flat" (%square) : tensor<?x4x1x1xf32>
  %same = nn.flatten "same" (%flat) : tensor<?x4x1x1xf32>
  %w = nn.parameter "dead.weight" : tensor<3x4xf32>
  %dead = nn.linear "dead" (%same, %w) : tensor<?x3x1x1xf32>
  nn.output (%same)
}

// CHECK:       %image = nn.input "image"
// CHECK-NEXT:  %relu = nn.relu "relu" (%image) folds = ["again"]
// CHECK-NEXT:  %skips = nn.max_pool "skips" (%relu) kernel = 1x1, stride = 2x2 :
// CHECK-NEXT:  %six = nn.relu6 "six" (%skips) folds = ["sixes"
// CHECK-NEXT:  nn.output (%six)
