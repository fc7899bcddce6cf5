// Explicit collectives, as every process runs them: what each neighbour has, and the sum of all.
func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %left = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]> : tensor<4x2xi64>}
    : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %square = stablehlo.multiply %x, %x : tensor<4x8xf32>
  %sum = "stablehlo.all_reduce"(%square) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
  }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %left, %sum : tensor<4x8xf32>, tensor<4x8xf32>
}
