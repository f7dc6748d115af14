builtin.module {
  fx.training @small numeric = <exponent = tensor, rounding = half-even, update = <msb-max>, constants = 8b, range = [-128, 127]>, batch = 4, target = "tests" {
    %image = fx.input "image" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    %dconv = fx.input "dconv" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x6x4x4, 8b, exp = tensor>
    %dpool = fx.input "dpool" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x4x4x4, 8b, exp = tensor>
    %both = fx.input "both" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x6x8x8, 8b, exp = tensor>
    %wide = fx.input "wide" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x4x16x16, 8b, exp = tensor>
    %vector = fx.input "vector" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x5x1x1, 8b, exp = tensor>
    %w = fx.parameter "conv.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<6x2x3x3, 8b, exp = tensor>
    %m = fx.parameter "conv.weight.master" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<6x2x3x3, 16b, exp = tensor>
    %v = fx.parameter "conv.weight.velocity" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<6x2x3x3, 16b, exp = tensor>
    %f = fx.parameter "fc.weight" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3x5x1x1, 8b, exp = tensor>
    %fm = fx.parameter "fc.weight.master" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3x5x1x1, 16b, exp = tensor>
    %gamma = fx.parameter "norm.gamma" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<4, 16b, exp = tensor>
    %beta = fx.parameter "norm.beta" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<4, 16b, exp = tensor>
    fx.phase forward
    %sums = fx.channel_sums "norm.sums" (%image) terms = [0, 0 * 0], needed = 23b : !fx.acc<2x4, 64b>
    %scale, %shift = fx.host.batch_norm "norm" (%sums, %gamma, %beta) float64, exponent = <msb-max, range = [-128, 127]>, epsilon = 1/1000, momentum = 1/5 : !fx.tensor<1x4x1x1, 16b, exp = tensor>, !fx.tensor<4, 16b, exp = tensor>
    %norm = fx.kernel "norm" layers = ["norm"] {
      %0 = fx.channel_affine (%image, %scale) on_overflow = saturate, overflow = impossible, needed = 24b : !fx.acc<?x4x8x8, 40b>
      %1 = fx.bias (%0, %shift) safe_shift = 23 : !fx.acc<?x4x8x8, 40b>
      fx.stats (%1) acquires = [msb, lsb]
      %2 = fx.quantize (%1) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x4x8x8, 8b, exp = tensor>
      fx.yield (%2)
    } : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    %fc = fx.kernel "fc" layers = ["fc"] {
      %3 = fx.linear (%vector, %f) on_overflow = saturate : !fx.acc<?x3x1x1, 40b>
      %4 = fx.quantize (%3) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x3x1x1, 8b, exp = tensor>
      fx.yield (%4)
    } : !fx.tensor<?x3x1x1, 8b, exp = tensor>
    fx.phase loss
    %fc.grad = fx.host.softmax_cross_entropy "fc.grad" (%fc) float64, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]>, scale_exponent = -3 : !fx.tensor<?x3x1x1, 8b, exp = tensor>
    fx.phase backward
    %fc.weight.grad = fx.kernel "fc.weight.grad" layers = ["fc"] {
      %5 = fx.linear_weight_gradient (%vector, %fc.grad) on_overflow = saturate : !fx.acc<3x5x1x1, 40b>
      %6 = fx.quantize (%5) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<3x5x1x1, 16b, exp = tensor>
      fx.yield (%6)
    } : !fx.tensor<3x5x1x1, 16b, exp = tensor>
    %fc.bias.grad = fx.kernel "fc.bias.grad" layers = ["fc"] {
      %7 = fx.bias_gradient (%fc.grad) on_overflow = saturate, overflow = impossible, needed = 10b : !fx.acc<3, 40b>
      %8 = fx.quantize (%7) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<3, 16b, exp = tensor>
      fx.yield (%8)
    } : !fx.tensor<3, 16b, exp = tensor>
    %vector.grad = fx.kernel "vector.grad" layers = ["vector"] {
      %9 = fx.linear_data_gradient (%fc.grad, %f) on_overflow = saturate : !fx.acc<?x5x1x1, 40b>
      %10 = fx.quantize (%9) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x5x1x1, 8b, exp = tensor>
      fx.yield (%10)
    } : !fx.tensor<?x5x1x1, 8b, exp = tensor>
    %sigmoid.grad = fx.kernel "sigmoid.grad" layers = ["sigmoid"] {
      %11 = fx.sigmoid_gradient (%vector, %vector.grad) on_overflow = saturate : !fx.acc<?x5x1x1, 40b>
      %12 = fx.quantize (%11) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x5x1x1, 8b, exp = tensor>
      fx.yield (%12)
    } : !fx.tensor<?x5x1x1, 8b, exp = tensor>
    %leaky.grad = fx.kernel "leaky.grad" layers = ["leaky"] {
      %13 = fx.leaky_relu_gradient (%vector, %vector.grad) slope = 205 * 2^-11, on_overflow = wrap : !fx.acc<?x5x1x1, 40b>
      %14 = fx.quantize (%13) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x5x1x1, 8b, exp = tensor>
      fx.yield (%14)
    } : !fx.tensor<?x5x1x1, 8b, exp = tensor>
    %relu.grad = fx.kernel "relu.grad" layers = ["relu"] {
      %15 = fx.relu_gradient (%norm, %image) : !fx.tensor<?x4x8x8, 8b, exp = tensor>
      fx.yield (%15)
    } : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    %clip.grad = fx.kernel "clip.grad" layers = ["clip"] {
      %16 = fx.clip_gradient (%norm, %image) limit = 192 * 2^-5 : !fx.tensor<?x4x8x8, 8b, exp = tensor>
      fx.yield (%16)
    } : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    %part.grad = fx.kernel "part.grad" layers = ["part"] {
      %17 = fx.channel_slice (%both) first = 2 : !fx.tensor<?x4x8x8, 8b, exp = tensor>
      fx.yield (%17)
    } : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    %resize.grad = fx.kernel "resize.grad" layers = ["resize"] {
      %18 = fx.resize_gradient (%wide) on_overflow = saturate : !fx.acc<?x4x8x8, 40b>
      %19 = fx.quantize (%18) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x4x8x8, 8b, exp = tensor>
      fx.yield (%19)
    } : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    %max.grad = fx.kernel "max.grad" layers = ["max"] {
      %20 = fx.max_pool_gradient (%image, %dpool) kernel = 3x3, stride = 2x2, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x4x8x8, 40b>
      %21 = fx.quantize (%20) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x4x8x8, 8b, exp = tensor>
      fx.yield (%21)
    } : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    %mean.grad = fx.kernel "mean.grad" layers = ["mean"] {
      %22 = fx.avg_pool_gradient (%dpool) constants = 8b, reciprocals = [1/4 = 128] * 2^-9, kernel = 2x2, stride = 2x2, on_overflow = saturate : !fx.acc<?x4x8x8, 40b>
      %23 = fx.quantize (%22) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x4x8x8, 8b, exp = tensor>
      fx.yield (%23)
    } : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    %conv.weight.grad = fx.kernel "conv.weight.grad" layers = ["conv"] {
      %24 = fx.conv2d_weight_gradient (%image, %dconv) groups = 2, kernel = 3x3, stride = 2x2, padding = [1, 1, 1, 1], on_overflow = saturate, overflow = impossible, needed = 22b : !fx.acc<6x2x3x3, 40b>
      fx.stats (%24) acquires = [msb]
      %25 = fx.quantize (%24) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<6x2x3x3, 16b, exp = tensor>
      fx.yield (%25)
    } : !fx.tensor<6x2x3x3, 16b, exp = tensor>
    %conv.grad = fx.kernel "conv.grad" layers = ["conv"] {
      %26 = fx.conv2d_data_gradient (%dconv, %w) groups = 2, kernel = 3x3, stride = 2x2, padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x4x8x8, 40b>
      %27 = fx.quantize (%26) rounding = stochastic, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x4x8x8, 8b, exp = tensor>
      fx.yield (%27)
    } : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    %grad.sums = fx.channel_sums "norm.grad.sums" (%image, %resize.grad) terms = [1, 1 * 0] : !fx.acc<2x4, 64b>
    %a, %b, %gamma.grad, %beta.grad = fx.host.batch_norm_gradient "norm" (%sums, %grad.sums, %gamma) float64, exponent = <msb-max, range = [-128, 127]>, gradient_exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]>, epsilon = 1/1000 : !fx.tensor<2x4x1x1, 16b, exp = tensor>, !fx.tensor<4, 16b, exp = tensor>, !fx.tensor<4, 12b, exp = tensor>, !fx.tensor<4, 12b, exp = tensor>
    %image.grad = fx.kernel "image.grad" layers = ["image"] {
      %28 = fx.channel_affine (%resize.grad, %image, %a) on_overflow = saturate : !fx.acc<?x4x8x8, 40b>
      %29 = fx.bias (%28, %b) : !fx.acc<?x4x8x8, 40b>
      %30 = fx.quantize (%29) rounding = half-even, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]> : !fx.tensor<?x4x8x8, 8b, exp = tensor>
      fx.yield (%30)
    } : !fx.tensor<?x4x8x8, 8b, exp = tensor>
    fx.phase update
    fx.update "conv.weight" (%w, %m, %v) {
      %31 = fx.momentum (%v, %conv.weight.grad, %m) momentum = 58982 * 2^-16, decay = 33554 * 2^-26 : !fx.acc<6x2x3x3, 63b>
      fx.stats (%31) acquires = [msb, lsb]
      %32 = fx.quantize (%31) rounding = stochastic, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<6x2x3x3, 16b, exp = tensor>
      %33 = fx.descend (%m, %32) : !fx.acc<6x2x3x3, 63b>
      %34 = fx.quantize (%33) rounding = stochastic, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<6x2x3x3, 16b, exp = tensor>
      %35 = fx.widen (%34) on_overflow = saturate : !fx.acc<6x2x3x3, 63b>
      %36 = fx.quantize (%35) rounding = stochastic, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<6x2x3x3, 8b, exp = tensor>
      fx.store (%36, %34, %32)
    }
    fx.update "fc.weight" (%f, %fm) {
      %37 = fx.descend (%fm, %fc.weight.grad) decay = 33554 * 2^-26 : !fx.acc<3x5x1x1, 63b>
      %38 = fx.quantize (%37) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3x5x1x1, 16b, exp = tensor>
      %39 = fx.widen (%38) on_overflow = saturate : !fx.acc<3x5x1x1, 63b>
      %40 = fx.quantize (%39) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<3x5x1x1, 8b, exp = tensor>
      fx.store (%40, %38)
    }
  }
}
