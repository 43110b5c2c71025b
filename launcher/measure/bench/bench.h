#pragma once
// launcher/measure/bench/ compares parts of the program with the shortest time that this machine allows: one bench_*.cc
// per part, on a BenchLane (bench_lane.h).

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json_writer.h"

namespace strata::launcher {

// The options of `strata bench`; each part uses some of them.
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
  bool force = false;  // overwrites json and svg, whatever they are
};

// `strata bench`: times one part of the program and compares it with the shortest time that this machine allows. `step`
// and `comm` also run under mpirun. Returns the exit code; throws Error.
int bench(const BenchOptions& options);

// The parts that are not in bench.cc.

// `strata bench adam`: times an optimizer step over options.parameters parameters (bf16 gradient in, bf16 parameter
// out, fp32 moments) against the triad, then every algorithm and format of moments in turn.
int bench_adam(const BenchOptions& options);

// `strata bench io`: write and read speed of options.dirs with the engine's own settings, over options.size bytes in
// each of options.rounds passes. The first write pass is not counted. Returns the exit code; throws Error.
int bench_io(const BenchOptions& options);

// `strata bench kernels`: times the memory-bound operations on the device of --set device.kind, each against a plain
// copy on it.
int bench_kernels(const BenchOptions& options);

// `strata bench memory`: runs the recipe's step with every combination of precision, recomputation, accumulation and
// optimizer tier. Each combination is planned here and run in its own process; results go to a table, JSON and a
// picture. Returns the exit code: failed if a run failed, or if bits differ that are promised to be the same. Throws
// Error.
int bench_memory(const BenchOptions& options);

// Throws Error{usage} if options.json exists and no benchmark wrote it. Call it before anything is measured.
void require_own_json(const BenchOptions& options);
// Writes the part and its figures as one JSON object to options.json, if given.
void write_json(const BenchOptions& options, const JsonObject& figures);

// The labels of documents: `problem` as in TokenSidecar::Labels (empty: none), and the names of the classes.
struct RandomLabels {
  std::string problem;
  std::vector<std::string> names;
};

// Writes a token file of random documents, with its sidecar and labels. Ids are below `vocabulary`, whose last id is
// the mask; lengths are from an eighth of `longest` to all of it; there are `tokens` tokens in all. The same arguments
// give the same file. Throws Error{failed}.
void write_random_documents(const std::filesystem::path& path, std::int64_t vocabulary, std::int64_t longest,
                            std::uint64_t tokens, const RandomLabels& labels = {});

}  // namespace strata::launcher
