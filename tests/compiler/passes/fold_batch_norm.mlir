// Into the convolution before it, with and without a bias; two in a row; a convolution that others read is left alone.
// RUN: binpoint opt %s -p fold-batch-norm

nn.network @net numeric = <exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, constants = 8b, range = [-128, 127]> {
  %image = nn.input "image" : tensor<?x4x8x8xf32>
  %bn.gamma = nn.parameter "bn.gamma" : tensor<4xf32>
  %bn.beta = nn.parameter "bn.beta" : tensor<4xf32>
  %bn.mean = nn.parameter "bn.mean" : tensor<4xf32>
  %bn.variance = nn.parameter "bn.variance" : tensor<4xf32>
  %conv.weight = nn.parameter "conv.weight" : tensor<4x4x1x1xf32>
  %conv.bias = nn.parameter "conv.bias" : tensor<4xf32>

  %conv = nn.conv2d "conv" (%image, %conv.weight, %conv.bias) kernel = 1x1 : tensor<?x4x8x8xf32>
  %bn1 = nn.batch_norm "bn1" (%conv, %bn.gamma, %bn.beta, %bn.mean, %bn.variance) epsilon = 1/1000 : tensor<?x4x8x8xf32>
  %bn2 = nn.batch_norm "bn2" (%bn1, %bn.gamma, %bn.beta, %bn.mean, %bn.variance) epsilon = 1/100 : tensor<?x4x8x8xf32>

  %shared = nn.conv2d "shared" (%bn2, %conv.weight) kernel = 1x1 : tensor<?x4x8x8xf32>
  %bn3 = nn.batch_norm "bn3" (%shared, %bn.gamma, %bn.beta, %bn.mean, %bn.variance) epsilon = 1/1000 : tensor<?x4x8x8xf32>
  nn.output (%shared, %bn3)
}

// CHECK:       [[S1:%[A-Za-z0-9_.]+]] = nn.batch_scale (%bn.gamma, %bn.variance) epsilon = 1/1000
// CHECK-NEXT:  [[W1:%[A-Za-z0-9_.]+]] = nn.scale_filters (%conv.weight, [[S1]])
// CHECK-NEXT:  [[B1:%[A-Za-z0-9_.]+]] = nn.batch_shift ([[S1]], %bn.beta, %bn.mean, %conv.bias)
// CHECK-NEXT:  [[S2:%[A-Za-z0-9_.]+]] = nn.batch_scale (%bn.gamma, %bn.variance) epsilon = 1/100
// CHECK-NEXT:  [[W2:%[A-Za-z0-9_.]+]] = nn.scale_filters ([[W1]], [[S2]])
// CHECK-NEXT:  [[B2:%[A-Za-z0-9_.]+]] = nn.batch_shift ([[S2]], %bn.beta, %bn.mean, [[B1]])
// CHECK-NEXT:  %conv = nn.conv2d "conv" (%image, [[W2]], [[B2]]) kernel = 1x1, folds = ["bn1", "bn2"]
// CHECK-NEXT:  %shared = nn.conv2d "shared" (%conv, %conv.weight) kernel = 1x1 :
// CHECK-NEXT:  [[S3:%[A-Za-z0-9_.]+]] = nn.batch_scale
// CHECK-NEXT:  [[W3:%[A-Za-z0-9_.]+]] = nn.diagonal_filters ([[S3]]) : tensor<4x1x1x1xf32>
// CHECK-NEXT:  [[B3:%[A-Za-z0-9_.]+]] = nn.batch_shift ([[S3]], %bn.beta, %bn.mean) : tensor<4xf32>
// CHECK-NEXT:  %bn3 = nn.depthwise "bn3" (%shared, [[W3]], [[B3]]) kernel = 1x1
// CHECK-NEXT:  nn.output (%shared, %bn3)
