#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {

// Tokens below 130, as DIR/tokens.bin.
inline void write_small_tokens(const tests::ScratchFolder& folder) {
  std::ofstream file(folder.path() / "tokens.bin", std::ios::binary);
  for (std::uint32_t i = 0; i < 900; ++i) {
    const auto token = static_cast<std::uint16_t>((i * i * 7 + i / 5) % 130);
    file.write(reinterpret_cast<const char*>(&token), 2);
  }
}

// Models of three blocks, with dropout.
inline const std::vector<std::string> kSmallGpt2 = {
    "model.preset=tiny-gpt2",      "model.config.n_layer=3",       "model.config.n_embd=48",
    "model.config.n_head=3",       "model.config.vocab_size=130",  "model.config.n_positions=24",
    "model.config.attn_pdrop=0.1", "model.config.resid_pdrop=0.1", "model.config.embd_pdrop=0.1"};
inline const std::vector<std::string> kSmallLlama = {"model.preset=tiny-llama",
                                                     "model.config.num_hidden_layers=3",
                                                     "model.config.hidden_size=40",
                                                     "model.config.num_attention_heads=5",
                                                     "model.config.num_key_value_heads=1",
                                                     "model.config.head_dim=8",
                                                     "model.config.intermediate_size=72",
                                                     "model.config.vocab_size=130",
                                                     "model.config.attention_dropout=0.1"};

inline void expect_same(const Trained& trained, const Trained& first, const std::string& name) {
  EXPECT_TRUE(trained.memory_as_planned) << name;
  EXPECT_TRUE(trained.bytes_as_planned) << name;
  EXPECT_EQ(trained.loss_hex, first.loss_hex) << name;
  EXPECT_EQ(trained.weights_hash, first.weights_hash) << name;
}

// Trains on `ranks` threads with these additional sets and plan_in_pieces(tile_bytes, update_chunk).
using TrainWith = std::function<Trained(int ranks, const std::vector<std::string>& more, std::size_t tile_bytes,
                                        std::size_t update_chunk)>;

// Runs with stages, recomputation, orders, prefetch, groups and tiles on 1, 2 and 4 ranks.
inline void expect_same_whatever_the_plan(const Trained& first, const TrainWith& train) {
  int i = 0;
  for (const int ranks : {1, 2, 4})
    for (int stage = 0; stage < 4; ++stage)
      for (const char* recompute : {"none", "block", "sqrt"}) {
        const std::string order = ++i % 2 ? "vertical" : "horizontal";
        std::vector<std::string> more = {fmt::format("zero.stage={}", stage),
                                         fmt::format("training.recompute={}", recompute), "memory.order=" + order,
                                         fmt::format("memory.prefetch={}", i % 4)};
        // Parameters are sharded over half of the ranks, so that each half has a copy.
        if (ranks == 4 && stage == 3 && i % 2) more.emplace_back("zero.parameters_group=2");
        // Every third run is in tiles, which exist only for sharded parameters.
        expect_same(train(ranks, more, i % 3 ? 0 : 1, 0), first,
                    fmt::format("{} ranks, stage {}, recompute {}, {}", ranks, stage, recompute, order));
      }
}

// Parameters, gradients, optimizer and activations on the device, in host memory and on drives; needs memory.nvme.
inline void expect_same_in_every_tier(const Trained& first, const TrainWith& train) {
  const char* tiers[] = {"device", "host", "nvme"};
  int i = 0;
  for (const char* parameters : tiers)
    for (const char* optimizer : tiers)
      for (const int ranks : {1, 2}) {
        const char* gradients = tiers[++i % 3];
        expect_same(
            train(ranks,
                  {fmt::format("zero.stage={}", ranks == 1 ? 0 : i % 4), fmt::format("zero.parameters={}", parameters),
                   fmt::format("zero.gradients={}", gradients), fmt::format("zero.optimizer={}", optimizer),
                   fmt::format("zero.activations={}", tiers[i % 2]),
                   fmt::format("training.recompute={}", i % 2 ? "block" : "none")},
                  i % 4 ? 0 : 1, kShardAlignment),
            first, fmt::format("{} ranks, {} {} {}", ranks, parameters, gradients, optimizer));
      }
}

}  // namespace strata::runtime
