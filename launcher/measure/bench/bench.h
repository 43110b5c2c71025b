#pragma once
// launcher/measure/bench/ compares parts of the program with the shortest time that this machine allows: one bench_*.cc
// for each part, on a BenchLane (bench_lane.h).

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json_writer.h"

namespace strata::launcher {

// The options of `strata bench`, of which each part uses some.
struct BenchOptions {
  std::string part;  // "step", "adam", "comm", "io", "kernels", "memory"
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  std::size_t parameters = 100'000'000;
  int steps = 8;
  std::optional<int> threads;
  std::vector<std::filesystem::path> dirs;  // io: one folder per drive
  std::string size = "1GiB";                // io, kernels
  int rounds = 3;
  std::vector<std::string> only;             // memory: "precision=bf16", ...
  std::optional<std::filesystem::path> svg;  // memory
  std::optional<std::filesystem::path> json;
  bool force = false;  // overwrites json and svg, whatever they contain
};

// `strata bench`: times one part of the program and compares it with the shortest time that this machine allows. `step`
// and `comm` also run under mpirun. Returns the exit code; throws Error.
int bench(const BenchOptions& options);

// The parts with their own source files:

// `strata bench adam`: times an optimizer step over options.parameters parameters (bf16 gradient in, bf16 parameter
// out, fp32 moments) against the triad, followed by every algorithm and format of moments.
int bench_adam(const BenchOptions& options);

// `strata bench io`: measures the speed of writing and reading options.dirs with the engine's own settings, over
// options.size bytes in each of options.rounds passes. The first write pass does not count. Returns the exit code;
// throws Error.
int bench_io(const BenchOptions& options);

// `strata bench kernels`: times the memory-bound operations on the device that --set device.kind selects, each against
// a plain copy on that device.
int bench_kernels(const BenchOptions& options);

// `strata bench memory`: runs the recipe's step with every combination of precision, recomputation, accumulation and
// optimizer tier. Each combination is planned here and runs in its own process. The results go to a table, JSON and a
// picture. Returns the exit code: `failed` if a run failed, or if bits differ that are promised to be the same. Throws
// Error.
int bench_memory(const BenchOptions& options);

// options.sets for a benchmark that needs no model: a recipe, which must name one, may choose device, drives and
// transport.
std::vector<std::string> sets_with_model(const BenchOptions& options);
// Throws Error{usage} if options.json exists and no benchmark wrote it. Call this before measuring.
void require_own_json(const BenchOptions& options);
// Writes the part and its figures as one JSON object to options.json, if that is given.
void write_json(const BenchOptions& options, const JsonObject& figures);

// The labels of documents: `problem` as in TokenSidecar::Labels (empty: none), and the names of the classes.
struct RandomLabels {
  std::string problem;
  std::vector<std::string> names;
};

// Writes a token file of random documents, with its sidecar and labels. Ids are less than `vocabulary`, whose last id
// is the mask; lengths range from an eighth of `longest` to `longest`; there are `tokens` tokens in total. The same
// arguments give the same file. Throws Error{failed}.
void write_random_documents(const std::filesystem::path& path, std::int64_t vocabulary, std::int64_t longest,
                            std::uint64_t tokens, const RandomLabels& labels = {});

}  // namespace strata::launcher
