module @jit_block attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<512x768xf32>, %arg1: tensor<768xf32>, %arg2: tensor<768xf32>, %arg3: tensor<768x2304xf32>, %arg4: tensor<2304xf32>, %arg5: tensor<768x768xf32>, %arg6: tensor<768xf32>, %arg7: tensor<768xf32>, %arg8: tensor<768xf32>, %arg9: tensor<768x3072xf32>, %arg10: tensor<3072xf32>, %arg11: tensor<3072x768xf32>, %arg12: tensor<768xf32>) -> (tensor<512x768xf32> {jax.result_info = "result"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<512x768xf32>, tensor<f32>) -> tensor<512xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<512xf32>) -> tensor<512x1xf32>
    %cst_0 = stablehlo.constant dense<7.680000e+02> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<512x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<512x1xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %4 = call @_var(%arg0, %c) : (tensor<512x768xf32>, tensor<i32>) -> tensor<512x1xf32>
    %5 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<512x1xf32>) -> tensor<512x768xf32>
    %6 = stablehlo.subtract %arg0, %5 : tensor<512x768xf32>
    %cst_1 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<512x1xf32>
    %8 = stablehlo.add %4, %7 : tensor<512x1xf32>
    %9 = stablehlo.rsqrt %8 : tensor<512x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<512x1xf32>) -> tensor<512x768xf32>
    %11 = stablehlo.multiply %6, %10 : tensor<512x768xf32>
    %12 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<768xf32>) -> tensor<1x768xf32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0, 1] : (tensor<1x768xf32>) -> tensor<512x768xf32>
    %14 = stablehlo.multiply %11, %13 : tensor<512x768xf32>
    %15 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<768xf32>) -> tensor<1x768xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1] : (tensor<1x768xf32>) -> tensor<512x768xf32>
    %17 = stablehlo.add %14, %16 : tensor<512x768xf32>
    %18 = stablehlo.dot_general %17, %arg3, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<512x768xf32>, tensor<768x2304xf32>) -> tensor<512x2304xf32>
    %19 = stablehlo.broadcast_in_dim %arg4, dims = [1] : (tensor<2304xf32>) -> tensor<1x2304xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [0, 1] : (tensor<1x2304xf32>) -> tensor<512x2304xf32>
    %21 = stablehlo.add %18, %20 : tensor<512x2304xf32>
    %22 = stablehlo.reshape %21 : (tensor<512x2304xf32>) -> tensor<512x3x12x64xf32>
    %23 = stablehlo.slice %22 [0:512, 0:1, 0:12, 0:64] : (tensor<512x3x12x64xf32>) -> tensor<512x1x12x64xf32>
    %24 = stablehlo.reshape %23 : (tensor<512x1x12x64xf32>) -> tensor<512x12x64xf32>
    %25 = stablehlo.transpose %24, dims = [1, 0, 2] : (tensor<512x12x64xf32>) -> tensor<12x512x64xf32>
    %26 = stablehlo.slice %22 [0:512, 1:2, 0:12, 0:64] : (tensor<512x3x12x64xf32>) -> tensor<512x1x12x64xf32>
    %27 = stablehlo.reshape %26 : (tensor<512x1x12x64xf32>) -> tensor<512x12x64xf32>
    %28 = stablehlo.transpose %27, dims = [1, 0, 2] : (tensor<512x12x64xf32>) -> tensor<12x512x64xf32>
    %29 = stablehlo.slice %22 [0:512, 2:3, 0:12, 0:64] : (tensor<512x3x12x64xf32>) -> tensor<512x1x12x64xf32>
    %30 = stablehlo.reshape %29 : (tensor<512x1x12x64xf32>) -> tensor<512x12x64xf32>
    %31 = stablehlo.transpose %30, dims = [1, 0, 2] : (tensor<512x12x64xf32>) -> tensor<12x512x64xf32>
    %32 = stablehlo.dot_general %25, %28, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<12x512x64xf32>, tensor<12x512x64xf32>) -> tensor<12x512x512xf32>
    %cst_2 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %33 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<12x512x512xf32>
    %34 = stablehlo.divide %32, %33 : tensor<12x512x512xf32>
    %cst_3 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %35 = stablehlo.reduce(%34 init: %cst_3) applies stablehlo.maximum across dimensions = [2] : (tensor<12x512x512xf32>, tensor<f32>) -> tensor<12x512xf32>
    %cst_4 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %36 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<12x512xf32>
    %37 = stablehlo.maximum %36, %35 : tensor<12x512xf32>
    %38 = stablehlo.broadcast_in_dim %37, dims = [0, 1] : (tensor<12x512xf32>) -> tensor<12x512x1xf32>
    %39 = stablehlo.broadcast_in_dim %38, dims = [0, 1, 2] : (tensor<12x512x1xf32>) -> tensor<12x512x512xf32>
    %40 = stablehlo.subtract %34, %39 : tensor<12x512x512xf32>
    %41 = stablehlo.exponential %40 : tensor<12x512x512xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %42 = stablehlo.reduce(%41 init: %cst_5) applies stablehlo.add across dimensions = [2] : (tensor<12x512x512xf32>, tensor<f32>) -> tensor<12x512xf32>
    %43 = stablehlo.broadcast_in_dim %42, dims = [0, 1] : (tensor<12x512xf32>) -> tensor<12x512x1xf32>
    %44 = stablehlo.broadcast_in_dim %43, dims = [0, 1, 2] : (tensor<12x512x1xf32>) -> tensor<12x512x512xf32>
    %45 = stablehlo.divide %41, %44 : tensor<12x512x512xf32>
    %46 = stablehlo.dot_general %45, %31, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<12x512x512xf32>, tensor<12x512x64xf32>) -> tensor<12x512x64xf32>
    %47 = stablehlo.transpose %46, dims = [1, 0, 2] : (tensor<12x512x64xf32>) -> tensor<512x12x64xf32>
    %48 = stablehlo.reshape %47 : (tensor<512x12x64xf32>) -> tensor<512x768xf32>
    %49 = stablehlo.dot_general %48, %arg5, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<512x768xf32>, tensor<768x768xf32>) -> tensor<512x768xf32>
    %50 = stablehlo.add %arg0, %49 : tensor<512x768xf32>
    %51 = stablehlo.broadcast_in_dim %arg6, dims = [1] : (tensor<768xf32>) -> tensor<1x768xf32>
    %52 = stablehlo.broadcast_in_dim %51, dims = [0, 1] : (tensor<1x768xf32>) -> tensor<512x768xf32>
    %53 = stablehlo.add %50, %52 : tensor<512x768xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %54 = stablehlo.reduce(%53 init: %cst_6) applies stablehlo.add across dimensions = [1] : (tensor<512x768xf32>, tensor<f32>) -> tensor<512xf32>
    %55 = stablehlo.broadcast_in_dim %54, dims = [0] : (tensor<512xf32>) -> tensor<512x1xf32>
    %cst_7 = stablehlo.constant dense<7.680000e+02> : tensor<f32>
    %56 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<512x1xf32>
    %57 = stablehlo.divide %55, %56 : tensor<512x1xf32>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %58 = call @_var(%53, %c_8) : (tensor<512x768xf32>, tensor<i32>) -> tensor<512x1xf32>
    %59 = stablehlo.broadcast_in_dim %57, dims = [0, 1] : (tensor<512x1xf32>) -> tensor<512x768xf32>
    %60 = stablehlo.subtract %53, %59 : tensor<512x768xf32>
    %cst_9 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %61 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<512x1xf32>
    %62 = stablehlo.add %58, %61 : tensor<512x1xf32>
    %63 = stablehlo.rsqrt %62 : tensor<512x1xf32>
    %64 = stablehlo.broadcast_in_dim %63, dims = [0, 1] : (tensor<512x1xf32>) -> tensor<512x768xf32>
    %65 = stablehlo.multiply %60, %64 : tensor<512x768xf32>
    %66 = stablehlo.broadcast_in_dim %arg7, dims = [1] : (tensor<768xf32>) -> tensor<1x768xf32>
    %67 = stablehlo.broadcast_in_dim %66, dims = [0, 1] : (tensor<1x768xf32>) -> tensor<512x768xf32>
    %68 = stablehlo.multiply %65, %67 : tensor<512x768xf32>
    %69 = stablehlo.broadcast_in_dim %arg8, dims = [1] : (tensor<768xf32>) -> tensor<1x768xf32>
    %70 = stablehlo.broadcast_in_dim %69, dims = [0, 1] : (tensor<1x768xf32>) -> tensor<512x768xf32>
    %71 = stablehlo.add %68, %70 : tensor<512x768xf32>
    %72 = stablehlo.dot_general %71, %arg9, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<512x768xf32>, tensor<768x3072xf32>) -> tensor<512x3072xf32>
    %73 = stablehlo.broadcast_in_dim %arg10, dims = [1] : (tensor<3072xf32>) -> tensor<1x3072xf32>
    %74 = stablehlo.broadcast_in_dim %73, dims = [0, 1] : (tensor<1x3072xf32>) -> tensor<512x3072xf32>
    %75 = stablehlo.add %72, %74 : tensor<512x3072xf32>
    %cst_10 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %76 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<512x3072xf32>
    %77 = stablehlo.multiply %76, %75 : tensor<512x3072xf32>
    %cst_11 = stablehlo.constant dense<0.707106769> : tensor<f32>
    %78 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<512x3072xf32>
    %79 = stablehlo.multiply %75, %78 : tensor<512x3072xf32>
    %80 = chlo.erf %79 : tensor<512x3072xf32> -> tensor<512x3072xf32>
    %cst_12 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %81 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<512x3072xf32>
    %82 = stablehlo.add %81, %80 : tensor<512x3072xf32>
    %83 = stablehlo.multiply %77, %82 : tensor<512x3072xf32>
    %84 = stablehlo.dot_general %83, %arg11, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<512x3072xf32>, tensor<3072x768xf32>) -> tensor<512x768xf32>
    %85 = stablehlo.add %53, %84 : tensor<512x768xf32>
    %86 = stablehlo.broadcast_in_dim %arg12, dims = [1] : (tensor<768xf32>) -> tensor<1x768xf32>
    %87 = stablehlo.broadcast_in_dim %86, dims = [0, 1] : (tensor<1x768xf32>) -> tensor<512x768xf32>
    %88 = stablehlo.add %85, %87 : tensor<512x768xf32>
    return %88 : tensor<512x768xf32>
  }
  func.func private @_var(%arg0: tensor<512x768xf32>, %arg1: tensor<i32>) -> tensor<512x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<512x768xf32>, tensor<f32>) -> tensor<512xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<512xf32>) -> tensor<512x1xf32>
    %cst_0 = stablehlo.constant dense<7.680000e+02> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<512x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<512x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<512x1xf32>) -> tensor<512x768xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<512x768xf32>
    %6 = chlo.square %5 : tensor<512x768xf32> -> tensor<512x768xf32>
    %7 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %cst_1 = stablehlo.constant dense<7.680000e+02> : tensor<f32>
    %8 = stablehlo.subtract %cst_1, %7 : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.reduce(%6 init: %cst_2) applies stablehlo.add across dimensions = [1] : (tensor<512x768xf32>, tensor<f32>) -> tensor<512xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0] : (tensor<512xf32>) -> tensor<512x1xf32>
    %11 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<512x1xf32>
    %12 = stablehlo.divide %10, %11 : tensor<512x1xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %13 = stablehlo.compare GT, %8, %cst_3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %cst_4 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = call @_where(%13, %12, %cst_4) : (tensor<i1>, tensor<512x1xf32>, tensor<f32>) -> tensor<512x1xf32>
    return %14 : tensor<512x1xf32>
  }
  func.func private @_where(%arg0: tensor<i1>, %arg1: tensor<512x1xf32>, %arg2: tensor<f32>) -> tensor<512x1xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<512x1xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<i1>, tensor<512x1xf32>
    return %2 : tensor<512x1xf32>
  }
}
