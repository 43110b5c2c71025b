#pragma once
// launcher/measure/bench/ compares parts of the program with the least time that this machine allows: a bench_*.cc per
// part, on a Stand (bench_stand.h).
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

// `strata bench`: one part of the program against the least time that this machine allows. `step` and `comm` run under
// mpirun too. Returns the exit code; throws Error.
int bench(const BenchOptions& options);

// Its parts that are not in bench.cc.

// `strata bench adam`: an optimizer step over options.parameters parameters, bf16 gradient in and bf16 parameter
// out, with fp32 moments against the triad, and then every algorithm and format of moments, in turns.
int bench_adam(const BenchOptions& options);

// `strata bench io`: write and read speed of options.dirs at the engine's own settings, over options.size bytes in
// each of options.rounds passes; the first write pass is not counted. Returns the exit code; throws Error.
int bench_io(const BenchOptions& options);

// `strata bench kernels`: the operations that memory bounds, on the device that --set device.kind names, each against a
// plain copy there.
int bench_kernels(const BenchOptions& options);

// `strata bench memory`: the recipe's step with every combination of precision, recomputation, accumulation and place
// of the optimizer, each planned here and run by a process of its own; as a table, JSON and a picture. Returns the exit
// code: failed if a run failed, or if bits differ that are promised to be the same. Throws Error.
int bench_memory(const BenchOptions& options);

// Throws Error{usage} if options.json is there and is not what a benchmark wrote. Before anything is measured.
void require_own_json(const BenchOptions& options);
// The figures, as one JSON object, into options.json if given.
void write_json(const BenchOptions& options, const std::string& text);

}  // namespace strata::launcher
