#pragma once
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <fstream>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {

struct ContractModel {
  const char* name;
  std::vector<std::string> sets;
};

inline const ContractModel kModels[] = {
    {"tied, dropout",
     {"model.preset=tiny-gpt2", "model.config.n_layer=3", "model.config.n_embd=48", "model.config.n_head=3",
      "model.config.vocab_size=130", "model.config.n_positions=24", "model.config.attn_pdrop=0.1",
      "model.config.resid_pdrop=0.1", "model.config.embd_pdrop=0.1"}},
    {"untied, grouped queries",
     {"model.preset=tiny-llama", "model.config.num_hidden_layers=3", "model.config.hidden_size=40",
      "model.config.num_attention_heads=5", "model.config.num_key_value_heads=1", "model.config.head_dim=8",
      "model.config.intermediate_size=72", "model.config.vocab_size=130", "model.config.attention_dropout=0.1"}},
};

// A model (of kModels) in a precision, with four micro-batches per step over all ranks.
class ContractCase : public testing::TestWithParam<std::tuple<int, const char*>> {
 protected:
  void SetUp() override {
    std::ofstream file(folder_.path() / "tokens.bin", std::ios::binary);
    for (std::uint32_t i = 0; i < 900; ++i) {
      const auto token = static_cast<std::uint16_t>((i * i * 7 + i / 5) % 130);
      file.write(reinterpret_cast<const char*>(&token), 2);
    }
  }
  std::vector<std::string> sets(int ranks) const {
    std::vector<std::string> all = kModels[std::get<0>(GetParam())].sets;
    for (const std::string& set :
         {fmt::format("data.train={}", (folder_.path() / "tokens.bin").string()), std::string("data.seq_len=16"),
          std::string("training.max_steps=3"), std::string("training.micro_batch_size=2"),
          fmt::format("training.precision={}", std::get<1>(GetParam())), std::string("optimizer.learning_rate=2e-3"),
          fmt::format("training.gradient_accumulation_steps={}", 4 / ranks)})
      all.push_back(set);
    return all;
  }

  tests::ScratchFolder folder_;
};

inline std::string contract_name(const testing::TestParamInfo<std::tuple<int, const char*>>& info) {
  return fmt::format("{}_{}", std::get<0>(info.param) == 0 ? "gpt2" : "llama", std::get<1>(info.param));
}
inline const auto kContractCases = testing::Combine(testing::Values(0, 1), testing::Values("fp32", "bf16", "fp16"));

}  // namespace strata::runtime
