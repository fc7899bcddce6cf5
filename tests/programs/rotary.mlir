module @jit_rotary attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x256x8x64xf32>) -> (tensor<2x256x8x64xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.iota dim = 0 : tensor<256xi32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<256xi32>) -> tensor<256x1xi32>
    %2 = stablehlo.iota dim = 0 : tensor<32xi32>
    %c = stablehlo.constant dense<2> : tensor<i32>
    %3 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<32xi32>
    %4 = stablehlo.multiply %3, %2 : tensor<32xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %5 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<32xi32>
    %6 = stablehlo.add %5, %4 : tensor<32xi32>
    %7 = stablehlo.convert %6 : (tensor<32xi32>) -> tensor<32xf32>
    %cst = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %9 = stablehlo.divide %7, %8 : tensor<32xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+04> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %11 = stablehlo.power %10, %9 : tensor<32xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [1] : (tensor<32xf32>) -> tensor<1x32xf32>
    %13 = stablehlo.convert %1 : (tensor<256x1xi32>) -> tensor<256x1xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1] : (tensor<256x1xf32>) -> tensor<256x32xf32>
    %15 = stablehlo.broadcast_in_dim %12, dims = [0, 1] : (tensor<1x32xf32>) -> tensor<256x32xf32>
    %16 = stablehlo.divide %14, %15 : tensor<256x32xf32>
    %17 = stablehlo.cosine %16 : tensor<256x32xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [1, 3] : (tensor<256x32xf32>) -> tensor<1x256x1x32xf32>
    %19 = stablehlo.sine %16 : tensor<256x32xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [1, 3] : (tensor<256x32xf32>) -> tensor<1x256x1x32xf32>
    %21 = stablehlo.slice %arg0 [0:2, 0:256, 0:8, 0:32] : (tensor<2x256x8x64xf32>) -> tensor<2x256x8x32xf32>
    %22 = stablehlo.slice %arg0 [0:2, 0:256, 0:8, 32:64] : (tensor<2x256x8x64xf32>) -> tensor<2x256x8x32xf32>
    %23 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x256x1x32xf32>) -> tensor<2x256x8x32xf32>
    %24 = stablehlo.multiply %21, %23 : tensor<2x256x8x32xf32>
    %25 = stablehlo.broadcast_in_dim %20, dims = [0, 1, 2, 3] : (tensor<1x256x1x32xf32>) -> tensor<2x256x8x32xf32>
    %26 = stablehlo.multiply %22, %25 : tensor<2x256x8x32xf32>
    %27 = stablehlo.subtract %24, %26 : tensor<2x256x8x32xf32>
    %28 = stablehlo.broadcast_in_dim %20, dims = [0, 1, 2, 3] : (tensor<1x256x1x32xf32>) -> tensor<2x256x8x32xf32>
    %29 = stablehlo.multiply %21, %28 : tensor<2x256x8x32xf32>
    %30 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x256x1x32xf32>) -> tensor<2x256x8x32xf32>
    %31 = stablehlo.multiply %22, %30 : tensor<2x256x8x32xf32>
    %32 = stablehlo.add %29, %31 : tensor<2x256x8x32xf32>
    %33 = stablehlo.concatenate %27, %32, dim = 3 : (tensor<2x256x8x32xf32>, tensor<2x256x8x32xf32>) -> tensor<2x256x8x64xf32>
    return %33 : tensor<2x256x8x64xf32>
  }
}
