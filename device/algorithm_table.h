#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "device/lane.h"
#include "device/ops/products/product.h"

namespace strata::device {

// A product as a library chooses an algorithm for it: its shape, and how many bytes its operands and their rows are
// aligned to.
struct AlgorithmKey {
  ProductShape shape;
  int alignment = 16;
  // One line of words, such as "1024x4096x768 NT 768x768x4096 bf16 bf16 bias gelu_tanh 16".
  std::string text() const;
};

// The algorithm of each product on machines of one kind, as found by timing: machines that use the same table compute
// the same bits. Text of a line per product, so that it can be kept in a file, sent to other ranks and compared.
class AlgorithmTable {
 public:
  // machine: the kind of GPU and the version of the library, as algorithm_machine() gives them.
  explicit AlgorithmTable(std::string machine) : machine_(std::move(machine)) {}
  // Throws Error{corrupt} naming `origin` and the line.
  static AlgorithmTable parse(std::string_view text, const std::string& origin);
  std::string text() const;
  // Of the text.
  std::uint64_t hash() const;

  const std::string& machine() const { return machine_; }
  std::size_t size() const { return lines_.size(); }
  // What the library calls its algorithm, bytes that mean nothing here; or null. "apart" (see kApart) is a value too.
  const std::string* find(const AlgorithmKey& key) const;
  void set(const AlgorithmKey& key, std::string algorithm);

  // In place of an algorithm: the epilogue is faster as an operation of its own.
  static constexpr std::string_view kApart = "apart";

 private:
  std::string machine_;
  std::map<std::string, std::string, std::less<>> lines_;
};

// Where the table of a machine is kept: STRATA_ALGORITHMS names the file, else it lies in the user's cache folder.
// Empty if neither is known.
std::filesystem::path algorithm_file(const std::string& machine);
// The table of `file`, empty if there is none. Throws Error{usage} if it is another machine's.
AlgorithmTable load_algorithms(const std::filesystem::path& file, const std::string& machine);
// Throws Error{failed}.
void save_algorithms(const AlgorithmTable& table, const std::filesystem::path& file);

// The machine that a table for `device` is about: "NVIDIA H200 (132 SMs), cuBLASLt 13.1.0, cuDNN 9.10.2", all that bits
// may depend on; empty if products have nothing to choose from, as on the CPU.
std::string algorithm_machine(Device device);
// Adds what `table` lacks for these products, each candidate timed on `device`. At set-up and before the arenas: it
// takes and gives back memory as large as the largest product's operands, some tenths of a second per product.
void search_algorithms(Device device, std::span<const ProductShape> shapes, AlgorithmTable& table);
// From now on, products of `lane` use the table; those that it lacks, the library's first proposal.
void use_algorithms(Lane& lane, const std::shared_ptr<const AlgorithmTable>& table);

}  // namespace strata::device
