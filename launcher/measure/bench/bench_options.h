#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

// What the command line asks of `strata bench`; each part takes some of it.
struct BenchOptions {
  std::string part;  // "step", "adam", "comm", "io", "kernels", "memory"
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  std::size_t parameters = 100'000'000;
  int steps = 8;
  std::optional<int> threads;
  std::vector<std::filesystem::path> dirs;  // io: one a drive
  std::string size = "1GiB";                // io, kernels
  int rounds = 3;
  std::vector<std::string> only;             // memory: "precision=bf16", ...
  std::optional<std::filesystem::path> svg;  // memory
  std::optional<std::filesystem::path> json;
  bool force = false;  // json and svg are written over whatever they are
};

}  // namespace strata::launcher
