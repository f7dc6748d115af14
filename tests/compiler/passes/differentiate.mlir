// Behind the loss, from its end to its beginning: gradients of parameters, and of feature maps behind parameters. What is
// read twice gets the sum of both; a sum hands its gradient on as it is.
// RUN: binpoint opt %s -p 'differentiate{accumulator-bits=48 accumulator-wraps=true}'

fx.training @net numeric = <exponent = tensor, rounding = half-even, update = <msb-max>, constants = 8b, range = [-128, 127]>, batch = 4 {
  %image = fx.input "image" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %conv.weight = fx.parameter "conv.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<4x1x3x3, 8b, exp = tensor>
  %conv.bias = fx.parameter "conv.bias" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<4, 16b, exp = tensor>
  %more.weight = fx.parameter "more.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<4x4x1x1, 8b, exp = tensor>
  %fc.weight = fx.parameter "fc.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3x4x1x1, 8b, exp = tensor>
  %fc.bias = fx.parameter "fc.bias" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3, 16b, exp = tensor>
  fx.phase forward
  %conv = fx.kernel "conv" layers = ["conv", "act"] {
    %conv.acc = fx.conv2d (%image, %conv.weight) groups = 2, kernel = 3x3, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x4x4x4, 40b>
    %conv.biased = fx.bias (%conv.acc, %conv.bias) : !fx.acc<?x4x4x4, 40b>
    %act.acc = fx.clip (%conv.biased) limit = 192 * 2^-5 : !fx.acc<?x4x4x4, 40b>
    %conv.out = fx.quantize (%act.acc) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x4x4x4, 8b, exp = tensor>
    fx.yield (%conv.out)
  } : !fx.tensor<?x4x4x4, 8b, exp = tensor>
  %more = fx.kernel "more" layers = ["more"] {
    %more.acc = fx.conv2d (%conv, %more.weight) kernel = 1x1, on_overflow = saturate : !fx.acc<?x4x4x4, 40b>
    %more.out = fx.quantize (%more.acc) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x4x4x4, 8b, exp = tensor>
    fx.yield (%more.out)
  } : !fx.tensor<?x4x4x4, 8b, exp = tensor>
  %sum = fx.kernel "sum" layers = ["sum"] {
    %sum.acc = fx.add (%conv, %more) on_overflow = saturate : !fx.acc<?x4x4x4, 40b>
    %sum.out = fx.quantize (%sum.acc) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x4x4x4, 8b, exp = tensor>
    fx.yield (%sum.out)
  } : !fx.tensor<?x4x4x4, 8b, exp = tensor>
  %max = fx.kernel "max" layers = ["max", "flat"] {
    %max.out = fx.max_pool (%sum) kernel = 4x4, stride = 4x4 : !fx.tensor<?x4x1x1, 8b, exp = tensor>
    fx.yield (%max.out)
  } : !fx.tensor<?x4x1x1, 8b, exp = tensor>
  %fc = fx.kernel "fc" layers = ["fc"] {
    %fc.acc = fx.linear (%max, %fc.weight) on_overflow = saturate : !fx.acc<?x3x1x1, 40b>
    %fc.biased = fx.bias (%fc.acc, %fc.bias) : !fx.acc<?x3x1x1, 40b>
    %fc.out = fx.quantize (%fc.biased) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
    fx.yield (%fc.out)
  } : !fx.tensor<?x3x1x1, 8b, exp = tensor>
  fx.phase loss
  %fc.grad = fx.host.softmax_cross_entropy "fc.grad" (%fc) float64, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
}

// CHECK:       fx.phase loss
// CHECK-NEXT:  %fc.grad = fx.host.softmax_cross_entropy "fc.grad" (%fc)
// CHECK-NEXT:  fx.phase backward
// CHECK-NEXT:  %fc.bias.grad = fx.kernel "fc.bias.grad" layers = ["fc"] {
// CHECK-NEXT:    %fc.bias.grad.acc = fx.bias_gradient (%fc.grad) on_overflow = wrap : !fx.acc<3, 48b>
// CHECK-NEXT:    %fc.bias.grad.out = fx.quantize (%fc.bias.grad.acc) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3, 16b, exp = tensor>
// CHECK-NEXT:    fx.yield (%fc.bias.grad.out)
// CHECK-NEXT:  } : !fx.tensor<3, 16b, exp = tensor>
// CHECK:         fx.linear_weight_gradient (%max, %fc.grad) on_overflow = wrap : !fx.acc<3x4x1x1, 48b>
// CHECK:       %max.grad = fx.kernel "max.grad" layers = ["fc"] {
// CHECK-NEXT:    {{.*}}fx.linear_data_gradient (%fc.grad, %fc.weight) on_overflow = wrap : !fx.acc<?x4x1x1, 48b>
// CHECK:       %sum.grad = fx.kernel "sum.grad" layers = ["max", "flat"] {
// CHECK-NEXT:    {{.*}}fx.max_pool_gradient (%sum, %max.grad) kernel = 4x4, stride = 4x4, on_overflow = wrap : !fx.acc<?x4x4x4, 48b>
// CHECK:       %more.weight.grad = fx.kernel "more.weight.grad" layers = ["more"] {
// CHECK-NEXT:    {{.*}}fx.conv2d_weight_gradient (%conv, %sum.grad) kernel = 1x1, on_overflow = wrap : !fx.acc<4x4x1x1, 48b>
// CHECK:       %conv.grad.more = fx.kernel "conv.grad.more" layers = ["more"] {
// CHECK-NEXT:    {{.*}}fx.conv2d_data_gradient (%sum.grad, %more.weight) kernel = 1x1, on_overflow = wrap : !fx.acc<?x4x4x4, 48b>
// CHECK:       %conv.grad = fx.kernel "conv.grad" layers = ["conv", "act"] {
// CHECK-NEXT:    {{.*}}fx.add (%sum.grad, %conv.grad.more) on_overflow = wrap : !fx.acc<?x4x4x4, 48b>

// The mask of the activation is exact: its result has the exponent of what it reads.
// CHECK:       %conv.acc.grad = fx.kernel "conv.acc.grad" layers = ["conv", "act"] {
// CHECK-NEXT:    %conv.acc.grad.out = fx.clip_gradient (%conv, %conv.grad) limit = 192 * 2^-5 : !fx.tensor<?x4x4x4, 8b, exp = tensor>
// CHECK-NEXT:    fx.yield (%conv.acc.grad.out)
// CHECK:         fx.bias_gradient (%conv.acc.grad)

// The image needs no gradient.
// CHECK:       %conv.weight.grad = fx.kernel "conv.weight.grad" layers = ["conv", "act"] {
// CHECK-NEXT:    {{.*}}fx.conv2d_weight_gradient (%image, %conv.acc.grad) groups = 2, kernel = 3x3, padding = [1, 1, 1, 1], on_overflow = wrap : !fx.acc<4x1x3x3, 48b>
// CHECK-NEXT:    {{.*}}fx.quantize
// CHECK-NEXT:    fx.yield
// CHECK-NEXT:  } : !fx.tensor<4x1x3x3, 16b, exp = tensor>
// CHECK-NEXT:  }
