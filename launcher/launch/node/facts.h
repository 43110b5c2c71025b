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
  std::string folder, problem;  // why it cannot be used; empty: it can
  std::string how;              // how it would be read and written
  std::uint64_t free = 0;       // bytes
};

// A network of a node.
struct Interface {
  std::string name, address;
};

// What one node of a cluster is and has, as far as a run depends on it. Sizes are bytes.
struct NodeFacts {
  std::string name;                  // its own
  std::string program;               // a hash of the program's file
  std::string processor, libraries;  // the kind of it, on which bits depend
  int cores = 0;
  std::uint64_t memory = 0;   // that a process can still take
  std::uint64_t memlock = 0;  // that a process may lock; all ones: no limit
  std::vector<DriveFact> drives;
  std::vector<std::string> gpus;  // "NVIDIA H200", those that can be used
  std::string driver;
  std::vector<Interface> interfaces;  // that are up, without loopback
};

// Of this machine.
NodeFacts facts_here(std::span<const std::filesystem::path> folders);
// A hash of the file this process runs.
std::string program_hash();
// What is to be done about a node with another one.
std::string another_build(const std::string& host);

// One line of JSON, and back. Throws Error{failed} if the text is none of ours.
std::string to_json(const NodeFacts& facts);
NodeFacts parse_facts(std::string_view json);

// GFLOP/s of bf16 products over so many seconds: of the slowest of this machine's GPUs, if there are any and they are
// meant; else of all its cores together.
double products_per_second(double seconds, bool on_gpus);

}  // namespace strata::launcher
