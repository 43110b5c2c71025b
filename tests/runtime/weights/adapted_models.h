#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "models/adapter.h"
#include "models/files/config.h"
#include "models/model.h"

namespace strata::runtime {

inline std::unique_ptr<models::Model> small_model(const char* config, std::shared_ptr<const models::Adapter> adapter) {
  models::RunShape run{1, 4, device::DType::fp32, 1};
  run.adapter = std::move(adapter);
  return make_model(models::Config::parse(config, "config.json"), run);
}
// One block of Llama, with adapters or without.
inline std::unique_ptr<models::Model> small_llama(std::shared_ptr<const models::Adapter> adapter = {}) {
  return small_model(R"({"model_type":"llama","hidden_size":8,"num_attention_heads":2,"num_hidden_layers":1,
                         "intermediate_size":12,"vocab_size":5,"max_position_embeddings":4})",
                     std::move(adapter));
}
// The same of GPT-2, which stores matrices as [in, out].
inline std::unique_ptr<models::Model> small_gpt2(std::shared_ptr<const models::Adapter> adapter = {}) {
  return small_model(R"({"model_type":"gpt2","n_embd":8,"n_head":2,"n_layer":1,"n_inner":12,"vocab_size":5,
                         "n_positions":4})",
                     std::move(adapter));
}

// A tensor of unit 1, the block.
inline std::size_t tensor_of(const models::Model& model, const std::string& name) {
  const auto parameters = model.units[1]->parameters();
  const auto found = std::ranges::find(parameters, name, &models::Parameter::name);
  return static_cast<std::size_t>(found - parameters.begin());
}

}  // namespace strata::runtime
