// Two layers on a mesh of 2 x 2 processes: the batch along x, the hidden features along y.
module {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func @main(%x: tensor<64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                  %up: tensor<32x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>},
                  %down: tensor<128x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
      -> (tensor<64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    %h = stablehlo.dot_general %x, %up, contracting_dims = [1] x [0] : (tensor<64x32xf32>, tensor<32x128xf32>) -> tensor<64x128xf32>
    %t = stablehlo.tanh %h : tensor<64x128xf32>
    %y = stablehlo.dot_general %t, %down, contracting_dims = [1] x [0] : (tensor<64x128xf32>, tensor<128x32xf32>) -> tensor<64x32xf32>
    return %y : tensor<64x32xf32>
  }
}
