builtin.module {
  nn.network @small numeric = <exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, constants = 8b, range = [-128, 127]> {
    %image = nn.input "image" scale = 1/255 : tensor<?x4x8x8xf32>
    %w = nn.parameter "conv.weight" : tensor<6x2x3x3xf32>
    %b = nn.parameter "conv.bias" : tensor<6xf32>
    %conv = nn.conv2d "conv" (%image, %w, %b) groups = 2, kernel = 3x3, padding = [1, 1, 1, 1] : tensor<?x6x8x8xf32>
    %relu = nn.relu "relu" (%conv) : tensor<?x6x8x8xf32>
    %dw = nn.parameter "deep.weight" : tensor<6x1x3x3xf32>
    %deep = nn.depthwise "deep" (%relu, %dw) kernel = 3x3, stride = 2x2, dilation = 1x1 : tensor<?x6x3x3xf32>
    %sum = nn.add "sum" (%relu, %conv) : tensor<?x6x8x8xf32>
    %pool = nn.avg_pool "pool" (%sum) kernel = 3x3, stride = 2x2, padding = [1, 1, 1, 1] : tensor<?x6x4x4xf32>
    %up = nn.upsample "up" (%pool) scale = 2x2 : tensor<?x6x8x8xf32>
    %cat = nn.concat "cat" (%up, %conv) : tensor<?x12x8x8xf32>
    %small = nn.resize "small" (%cat) size = 2x1 : tensor<?x12x2x1xf32>
    %flat = nn.flatten "flat" (%small) : tensor<?x24x1x1xf32>
    %square = nn.reshape "square" (%flat) shape = 6x2x2 : tensor<?x6x2x2xf32>
    %gap = nn.global_avg_pool "gap" (%square) : tensor<?x6x1x1xf32>
    %gamma = nn.parameter "norm.gamma" : tensor<6xf32>
    %beta = nn.parameter "norm.beta" : tensor<6xf32>
    %mean = nn.parameter "norm.mean" : tensor<6xf32>
    %variance = nn.parameter "norm.variance" : tensor<6xf32>
    %norm = nn.batch_norm "norm" (%gap, %gamma, %beta, %mean, %variance) epsilon = 1/100000 : tensor<?x6x1x1xf32>
    %fw = nn.parameter "fc.weight" : tensor<10x6xf32>
    %fc = nn.linear "fc" (%norm, %fw) : tensor<?x10x1x1xf32>
    %leaky = nn.leaky_relu "leaky" (%fc) slope = 1/10 : tensor<?x10x1x1xf32>
    nn.output (%leaky, %deep)
  }
}
