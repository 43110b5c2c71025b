#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/files/config.h"
#include "models/files/safetensors.h"
#include "tests/models/packed_learning.h"
#include "tests/models/reference.h"
#include "tests/source_dir.h"

// transformers' results for a few documents (tests/golden): FOLDER/model, and FOLDER/documents.safetensors with the
// documents, their loss, and the gradient of every parameter.
namespace strata::models::testing {

class Recorded {
 public:
  explicit Recorded(const std::string& folder) : folder_(tests::source_dir() / "tests/golden" / folder) {}

  // Empty if there is no tensor of that name.
  std::vector<float> values(const std::string& name) const {
    const StoredTensor* tensor = documents_.find(name);
    if (tensor == nullptr) return {};
    std::vector<float> out(tensor->elements());
    read_elements(*tensor, 0, out);
    return out;
  }
  // The documents one after another from row `first` on, in `rows` rows; labels in the form of a batch. `numbers`: they
  // are the bits of floats.
  Columns packed(std::size_t first, std::size_t rows, bool numbers = false) const {
    Columns out;
    out.add_leftover(first);
    const std::vector<float> tokens = values("tokens"), labels = values("labels"), types = values("types");
    if (!types.empty()) out.types.resize(first);
    std::size_t from = 0;
    for (const float length : values("lengths")) {
      const auto begin = static_cast<std::uint32_t>(out.tokens.size()), n = static_cast<std::uint32_t>(length);
      for (std::uint32_t i = 0; i < n; ++i, ++from) {
        const bool bits = numbers && labels[from] != device::kIgnoredLabel;
        out.tokens.push_back(static_cast<std::uint32_t>(tokens[from]));
        out.labels.push_back(bits ? std::bit_cast<std::int32_t>(labels[from])
                                  : static_cast<std::int32_t>(labels[from]));
        if (!types.empty()) out.types.push_back(static_cast<std::uint32_t>(types[from]));
        out.positions.push_back(i);
        out.documents.push_back({begin, begin + n});
      }
    }
    out.add_leftover(rows - out.tokens.size());
    return out;
  }
  // Runs the recorded model. loss_rows: see learn() in packed_learning.h.
  Learnt learn(const Columns& columns, std::span<const std::uint32_t> loss_rows = {}) const {
    const Safetensors weights = Safetensors::open(folder_ / "model");
    const auto fill = [&](const Unit& unit, Buffer& flat) {
      for (const Parameter& p : unit.parameters()) {
        const std::vector<std::uint64_t> shape(p.shape.begin(), p.shape.end());
        std::vector<float> from(p.size());
        read_elements(weights.require(p.name, shape), 0, from);
        for (std::size_t i = 0; i < from.size(); ++i) flat.set(p.offset + i, from[i]);
      }
    };
    return testing::learn(Config::read(folder_ / "model"), columns, 1.0f, fill, DType::fp32, loss_rows);
  }

  void expect_loss(double found) const {
    const double loss = values("loss").at(0);
    EXPECT_NEAR(found, loss, 1e-6 * loss);
  }
  // Expects all recorded gradients; `others` tensors of the file are none. Sums are in another order than PyTorch's,
  // through two blocks: some 1e-6 of a gradient's norm. A key's bias moves all scores of a row by the same amount, so
  // its gradient is 0 and only rounding remains: 1e-6 of `large`.
  void expect_gradients(const std::map<std::string, Doubles>& gradients, double large, std::size_t others) const {
    for (const auto& [name, gradient] : gradients) {
      const std::vector<float> stored = values("gradient of " + name);
      ASSERT_EQ(gradient.size(), stored.size()) << name;
      if (name.ends_with("key.bias") || name.ends_with("k_lin.bias")) {
        EXPECT_LT(norm_of(gradient), 1e-6 * large) << name;
        continue;
      }
      const Doubles want(stored.begin(), stored.end());
      EXPECT_GT(norm_of(want), 0) << name;
      EXPECT_LT(relative_error(gradient, want), 1e-5) << name;
    }
    EXPECT_EQ(gradients.size() + others, documents_.tensors().size())
        << "a parameter of transformers' that the model lacks";
  }

 private:
  std::filesystem::path folder_;
  Safetensors documents_ = Safetensors::open(folder_ / "documents.safetensors");
};

}  // namespace strata::models::testing
