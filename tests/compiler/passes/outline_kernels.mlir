// Each chain becomes a kernel in the place of its last operation, however its operations are mixed with others.
// RUN: binpoint opt %s -p outline-kernels

fx.program @net {
  %image = fx.input "image" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %a = fx.widen (%image) layers = ["relu"], on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %pool = fx.max_pool (%image) kernel = 1x1, layers = ["pool", "drop"] : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %b = fx.relu (%a) layers = ["relu"] : !fx.acc<?x2x4x4, 40b>
  %c = fx.add (%pool, %image) layers = ["sum", "bn"], on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  fx.stats (%b) acquires = [msb]
  %relu = fx.quantize (%b) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %d = fx.clip (%c) limit = 192 * 2^-5, layers = ["six"] : !fx.acc<?x2x4x4, 40b>
  %six = fx.quantize (%d) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  fx.output (%six, %relu)
}

// CHECK:       %pool = fx.kernel "pool" layers = ["pool", "drop"] {
// CHECK-NEXT:    %pool.out = fx.max_pool (%image) kernel = 1x1 :
// CHECK-NEXT:    fx.yield (%pool.out)
// CHECK-NEXT:  } : !fx.tensor<?x2x4x4, 8b, exp = tensor>
// CHECK-NEXT:  %relu = fx.kernel "relu" layers = ["relu"] {
// CHECK-NEXT:    %a = fx.widen (%image) on_overflow = saturate
// CHECK-NEXT:    %b = fx.relu (%a) :
// CHECK-NEXT:    fx.stats (%b) acquires = [msb]
// CHECK-NEXT:    %relu.out = fx.quantize (%b)
// CHECK-NEXT:    fx.yield (%relu.out)
// CHECK-NEXT:  } : !fx.tensor<?x2x4x4, 8b, exp = tensor>
// CHECK-NEXT:  %sum = fx.kernel "sum" layers = ["sum", "bn", "six"] {
// CHECK-NEXT:    %c = fx.add (%pool, %image)
// CHECK-NEXT:    %d = fx.clip (%c)
// CHECK-NEXT:    %sum.out = fx.quantize (%d)
// CHECK-NEXT:    fx.yield (%sum.out)
// CHECK-NEXT:  } : !fx.tensor<?x2x4x4, 8b, exp = tensor>
// CHECK-NEXT:  fx.output (%sum, %relu)
