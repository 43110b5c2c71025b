#pragma once
// runtime/weights/adapter/ holds the weights of LoRA and DoRA: adapters merged into their model and DoRA's initial
// magnitudes (here), and peft's folders (peft_folder.h).

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "models/model.h"
#include "runtime/weights/weight_source.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// The weights of `plain`, a model without adapters, computed from `weights`, the source of the same model with adapters
// (`adapted`): W + s B A in fp32 takes W's place. Both models must outlive the result.
std::unique_ptr<WeightSource> merged_weights(std::unique_ptr<WeightSource> weights, const models::Model& adapted,
                                             const models::Model& plain);

// The same without the adapter: `weights` belong to the model that it was trained on.
std::unique_ptr<WeightSource> without_adapter(std::unique_ptr<WeightSource> weights, const models::Model& adapted,
                                              const models::Model& plain);

// Reads all frozen weights; throws Error{usage} if they do not have the BaseHash that the source requires.
void verify_base(const WeightSource& weights, const models::Model& model);

// Adds DoRA's initial magnitudes, which no source of a model has: the norm of each row of W as the run has it
// (dequantised if W is quantised). B is zero then. The model must outlive the result.
std::unique_ptr<WeightSource> with_magnitudes(std::unique_ptr<WeightSource> weights, const models::Model& model);

// A matrix [rows, columns], or stored as [columns, rows].
struct MatrixShape {
  std::size_t rows, columns;
  bool input_major;
};
// The norms of `count` rows from `first`, in double precision. read(at, values): elements of the matrix from `at`.
std::vector<double> row_norms(const MatrixShape& shape, std::size_t first, std::size_t count,
                              const std::function<void(std::size_t at, std::span<float> values)>& read);

}  // namespace strata::runtime
