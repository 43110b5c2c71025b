#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "models/files/config.h"

namespace strata::models {

// The angles of rotary positions (Su et al. 2021): position * theta^(-2i / head_dim), stretched for long contexts.
struct RotaryTable {
  enum class Scaling {
    none,
    linear,  // all wavelengths are multiplied by the factor
    llama3,  // only long wavelengths are, with a smooth transition
    yarn,    // the same with a ramp over the pairs (Peng et al. 2023); cos and sin are multiplied by a constant
  };
  std::size_t head_dim = 0;
  double theta = 10000;
  Scaling scaling = Scaling::none;
  double factor = 1, original_positions = 0;
  double low_frequency = 1, high_frequency = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;          // yarn: turns within the original positions
  double attention_factor = 1;                   // multiplies cos and sin
  bool truncate = true;                          // yarn: the ramp starts and ends at whole pairs

  bool operator==(const RotaryTable&) const = default;
  std::size_t bytes(std::size_t positions) const { return positions * head_dim * sizeof(float); }
  // Writes cos, then sin, [positions, head_dim / 2] each, in fp32 as transformers computes them.
  void fill(std::size_t positions, std::byte* constants) const;

 private:
  double frequency(std::size_t i) const;
  double yarn_frequency(std::size_t i) const;
};

// Reads rope_parameters (transformers 5), or rope_theta and rope_scaling (4). `max_positions`: the model's. Throws
// Error{usage} if the kind of scaling is not supported, or if the two groups of keys contradict each other.
RotaryTable read_rotary_table(const Config& config, std::size_t head_dim, std::size_t max_positions);

// Reads the table for one kind of attention ("full_attention"), in a family with different angles for each kind: from
// its group in rope_parameters, and from rope_scaling, whose keys override the keys of all kinds. older_theta:
// transformers 4's key for this kind.
RotaryTable read_rotary_table(const Config& config, std::size_t head_dim, std::size_t max_positions,
                              const std::string& kind, std::string_view older_theta, double default_theta);

}  // namespace strata::models
