// Before each quantisation, once.
// RUN: binpoint opt %s -p 'insert-statistics{acquires=msb},insert-statistics'

fx.program @net {
  %image = fx.input "image" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %a = fx.widen (%image) on_overflow = saturate : !fx.acc<?x2x4x4, 40b>
  %b = fx.relu (%a) : !fx.acc<?x2x4x4, 40b>
  %relu = fx.quantize (%b) rounding = half-even, exponent = <msb-max, range = [-128, 127]> : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  %pool = fx.max_pool (%relu) kernel = 1x1 : !fx.tensor<?x2x4x4, 8b, exp = tensor>
  fx.output (%pool)
}

// CHECK:       %b = fx.relu (%a)
// CHECK-NEXT:  fx.stats (%b) acquires = [msb]
// CHECK-NEXT:  %relu = fx.quantize (%b)
// CHECK-NEXT:  %pool = fx.max_pool (%relu)
// CHECK-NEXT:  fx.output
