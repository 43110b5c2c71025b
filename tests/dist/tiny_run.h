#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/dist/launch.h"
#include "tests/scratch_folder.h"

namespace strata::tests {

// A short run of the program: a folder with a token file, and the keys of a small model.
class TinyRun {
 public:
  TinyRun() { write_tokens("tokens.bin", 600); }

  const ScratchFolder& folder() const { return folder_; }
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

  // `count` tokens below the vocabulary of 97, of two bytes each.
  void write_tokens(const std::string& name, std::uint32_t count) const {
    std::string bytes;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto token = static_cast<std::uint16_t>((i * i * 7 + i / 5) % 97);
      bytes.append(reinterpret_cast<const char*>(&token), sizeof token);
    }
    folder_.write(name, bytes);
  }

  // strata COMMAND with every key set, then the test's own.
  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& sets = {}) const {
    std::vector<std::string> all = {kStrata, name};
    add_sets(all, {"model.preset=tiny-gpt2", "model.config.n_layer=2", "model.config.n_embd=32",
                   "model.config.n_inner=512", "model.config.n_head=2", "model.config.vocab_size=97",
                   "model.config.n_positions=16", "data.train=" + file("tokens.bin"), "data.seq_len=16",
                   "training.max_steps=3", "optimizer.learning_rate=1e-3"});
    add_sets(all, sets);
    return all;
  }
  std::vector<std::string> train(const std::vector<std::string>& sets = {}) const { return command("train", sets); }

  // The same for a stored model: its path replaces the preset, and its config.json the preset's other keys.
  std::vector<std::string> train_stored(const std::string& model, const std::vector<std::string>& sets = {}) const {
    std::vector<std::string> all = {kStrata, "train"};
    add_sets(all, {"model.path=" + model, "data.train=" + file("tokens.bin"), "data.seq_len=16", "training.max_steps=3",
                   "training.precision=fp32"});
    add_sets(all, sets);
    return all;
  }

 private:
  static void add_sets(std::vector<std::string>& all, const std::vector<std::string>& sets) {
    for (const std::string& set : sets) {
      all.emplace_back("--set");
      all.push_back(set);
    }
  }

  ScratchFolder folder_;
};

}  // namespace strata::tests

// Expects that the command failed with `expected_code`, and that only one rank printed the reason, in one sentence that
// satisfies `matcher`.
#define EXPECT_COMPLAINT(outcome, expected_code, matcher)                                              \
  do {                                                                                                 \
    const ::strata::tests::Outcome& strata_outcome = (outcome);                                        \
    EXPECT_TRUE(strata_outcome.in_time) << strata_outcome.all();                                       \
    EXPECT_EQ(strata_outcome.code, static_cast<int>(expected_code)) << strata_outcome.all();           \
    EXPECT_THAT(strata_outcome.complaints(), ::testing::ElementsAre(matcher)) << strata_outcome.all(); \
  } while (0)
