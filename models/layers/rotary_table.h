#pragma once
#include <cstddef>
#include <string>

#include "models/files/config.h"

namespace strata::models {

// The angles of rotary positions (Su et al. 2021): position * theta^(-2i / head_dim), stretched for long contexts.
struct RotaryTable {
  std::size_t head_dim = 0;
  double theta = 10000;
  double factor = 1;  // of all wavelengths; 1: not stretched
  // Llama 3: long wavelengths by the factor, short ones not, in between smoothly.
  bool by_frequency = false;
  double low_frequency = 1, high_frequency = 4, original_positions = 0;

  std::size_t bytes(std::size_t positions) const { return positions * head_dim * sizeof(float); }
  // Writes cos, then sin, [positions, head_dim / 2] each, fp32 as transformers computes them.
  void fill(std::size_t positions, std::byte* constants) const;

 private:
  double frequency(std::size_t i) const;
};

// From rope_parameters (transformers 5), or rope_theta and rope_scaling (4). max_positions: of the model. Throws
// Error{usage} if the kind of scaling is not built.
RotaryTable read_rotary_table(const Config& config, std::size_t head_dim, std::size_t max_positions);

}  // namespace strata::models
