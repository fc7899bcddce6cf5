module @jit_gelu_mlp attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<512x768xf32>, %arg1: tensor<768x3072xf32>, %arg2: tensor<3072xf32>, %arg3: tensor<3072x768xf32>, %arg4: tensor<768xf32>) -> (tensor<512x768xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<512x768xf32>, tensor<768x3072xf32>) -> tensor<512x3072xf32>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<3072xf32>) -> tensor<1x3072xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x3072xf32>) -> tensor<512x3072xf32>
    %3 = stablehlo.add %0, %2 : tensor<512x3072xf32>
    %4 = call @gelu(%3) : (tensor<512x3072xf32>) -> tensor<512x3072xf32>
    %5 = stablehlo.dot_general %4, %arg3, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<512x3072xf32>, tensor<3072x768xf32>) -> tensor<512x768xf32>
    %6 = stablehlo.broadcast_in_dim %arg4, dims = [1] : (tensor<768xf32>) -> tensor<1x768xf32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<1x768xf32>) -> tensor<512x768xf32>
    %8 = stablehlo.add %5, %7 : tensor<512x768xf32>
    return %8 : tensor<512x768xf32>
  }
  func.func private @gelu(%arg0: tensor<512x3072xf32>) -> tensor<512x3072xf32> {
    %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<512x3072xf32>
    %1 = stablehlo.multiply %0, %arg0 : tensor<512x3072xf32>
    %2 = stablehlo.negate %arg0 : tensor<512x3072xf32>
    %cst_0 = stablehlo.constant dense<0.707106769> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<512x3072xf32>
    %4 = stablehlo.multiply %2, %3 : tensor<512x3072xf32>
    %5 = chlo.erfc %4 : tensor<512x3072xf32> -> tensor<512x3072xf32>
    %6 = stablehlo.multiply %1, %5 : tensor<512x3072xf32>
    return %6 : tensor<512x3072xf32>
  }
}
