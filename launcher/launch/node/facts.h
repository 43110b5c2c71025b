#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

// A folder of memory.nvme on a node.
struct DriveFact {
  std::string folder, problem;  // `problem`: why it cannot be used; empty if it can
  std::string how;              // how the folder would be read and written
  std::uint64_t free = 0;       // bytes
};

// A network interface of a node.
struct Interface {
  std::string name, address;

  bool operator==(const Interface&) const = default;
};

// The properties of a node that matter to a run. Sizes are in bytes.
struct NodeFacts {
  std::string name;                  // the node's own name
  std::string machine;               // boot and network, the same for all names of the node; empty: unknown
  std::string program;               // the hash of the program's file
  std::string processor, libraries;  // kinds of processor and libraries, on which bits depend
  int cores = 0;
  std::uint64_t memory = 0;   // bytes that a process can still allocate
  std::uint64_t memlock = 0;  // bytes that a process may lock; all ones: no limit
  std::vector<DriveFact> drives;
  std::vector<std::string> gpus;  // the usable ones: "NVIDIA H200"
  std::string driver;
  std::vector<Interface> interfaces;  // interfaces that are up, except loopback
};

// The facts of this machine.
NodeFacts facts_here(std::span<const std::filesystem::path> folders);
// A hash of the program file that this process runs.
std::string program_hash();
// A sentence that says what to do about a node that has another build.
std::string another_build(const std::string& host);

// Convert facts to one line of JSON and back. parse_facts() throws Error{failed} for any other text.
std::string to_json(const NodeFacts& facts);
NodeFacts parse_facts(std::string_view json);

// The speed of bf16 products in GFLOP/s, measured for `seconds`: on the slowest of this machine's GPUs if `on_gpus` and
// it has any, otherwise on all cores together.
double products_per_second(double seconds, bool on_gpus);

// A path or glob that every rank reads, and its name in messages: a key, or "the recipe".
struct RecipeFile {
  std::string key, pattern;

  bool operator==(const RecipeFile&) const = default;
};

// Convert the files to one line of JSON and back. Any other text gives an empty list.
std::string to_json(std::span<const RecipeFile> files);
std::vector<RecipeFile> parse_recipe_files(std::string_view json);

// One sentence for each file that this machine does not see or may not read.
std::vector<std::string> unseen_here(std::span<const RecipeFile> files);

}  // namespace strata::launcher
