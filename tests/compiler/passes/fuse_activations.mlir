// A relu joins the sum before it. It does not where somebody else reads the sum, nor where there is an activation
// already, nor behind an exact operation; nor where the accumulators differ.
// RUN: binpoint opt %s -p fuse-activations

fx.program @net {
  %image = fx.input "image" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %a = fx.add (%image, %image) layers = ["sum"], on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %sum = fx.quantize (%a) rounding = half-even, exponent = <msb-max, range = [-128, 127], initial = -4> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %b = fx.widen (%sum) layers = ["relu"], on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %c = fx.relu (%b) layers = ["relu"] : !fx.acc<?x2x4x4, 40b>
  %relu = fx.quantize (%c) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %d = fx.widen (%relu) layers = ["leaky"], on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %e = fx.leaky_relu (%d) slope = 205 * 2^-11, layers = ["leaky"] : !fx.acc<?x2x4x4, 40b>
  %leaky = fx.quantize (%e) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>

  %f = fx.add (%leaky, %image) layers = ["shared"], on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %shared = fx.quantize (%f) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %g = fx.widen (%shared) layers = ["relu2"], on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %h = fx.relu (%g) layers = ["relu2"] : !fx.acc<?x2x4x4, 40b>
  %relu2 = fx.quantize (%h) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>

  %pool = fx.max_pool (%relu2) kernel = 1x1, layers = ["pool"] : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %i = fx.widen (%pool) layers = ["relu3"], on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %j = fx.relu (%i) layers = ["relu3"] : !fx.acc<?x2x4x4, 40b>
  %relu3 = fx.quantize (%j) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>

  %k = fx.add (%relu3, %image) layers = ["wide"], on_overflow = saturate : !fx.acc<?x2x4x4, 48b>
  %wide = fx.quantize (%k) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %l = fx.widen (%wide) layers = ["relu4"], on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %m = fx.relu (%l) layers = ["relu4"] : !fx.acc<?x2x4x4, 40b>
  %relu4 = fx.quantize (%m) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  fx.output (%relu4, %shared)
}

// The first exponent that the user gave the sum holds for what the kernel now writes.
// CHECK:       %a = fx.add (%image, %image)
// CHECK-NEXT:  %c = fx.relu (%a) layers = ["relu"]
// CHECK-NEXT:  %relu = fx.quantize (%c) rounding = half-even, exponent = <msb-max, range = [-128, 127], initial = -4>
// CHECK-NEXT:  %d = fx.widen (%relu)
// CHECK-NEXT:  %e = fx.leaky_relu (%d)
// CHECK-NEXT:  %leaky = fx.quantize (%e)
// CHECK-NEXT:  %f = fx.add (%leaky, %image)
// CHECK-NEXT:  %shared = fx.quantize (%f)
// CHECK-NEXT:  %g = fx.widen (%shared)
// CHECK:       %pool = fx.max_pool
// CHECK-NEXT:  %i = fx.widen (%pool)
// CHECK:       %k = fx.add
// CHECK-NEXT:  %wide = fx.quantize (%k)
// CHECK-NEXT:  %l = fx.widen (%wide)
