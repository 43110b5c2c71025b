#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "device/lane.h"
#include "device/ops/products/product.h"

namespace strata::device {

// The properties of a product that determine a library's choice of an algorithm: its shape, and the alignment of its
// operands and their rows in bytes.
struct AlgorithmKey {
  ProductShape shape;
  int alignment = 16;
  // One line of text, for example "1024x4096x768 NT 768x768x4096 bf16 bf16 bias gelu_tanh 16".
  std::string text() const;
};

// The algorithm of each product on machines of one kind, found by timing. Machines that use the same table compute the
// same bits. The table is text with a line per product, so that it can be stored in a file, sent to other ranks and
// compared.
class AlgorithmTable {
 public:
  // machine: the kind of GPU and the version of the library, from algorithm_machine().
  explicit AlgorithmTable(std::string machine) : machine_(std::move(machine)) {}
  // Throws an Error{corrupt} that names `origin` and the line.
  static AlgorithmTable parse(std::string_view text, const std::string& origin);
  std::string text() const;
  // The hash of the text.
  std::uint64_t hash() const;

  const std::string& machine() const { return machine_; }
  std::size_t size() const { return lines_.size(); }
  // The algorithm in the library's own encoding, which is opaque here, or kApart. Null if the table has no entry.
  const std::string* find(const AlgorithmKey& key) const;
  void set(const AlgorithmKey& key, std::string algorithm);

  // Stored instead of an algorithm if the epilogue is faster as a separate operation.
  static constexpr std::string_view kApart = "apart";

 private:
  std::string machine_;
  std::map<std::string, std::string, std::less<>> lines_;
};

// The file of a machine's table: STRATA_ALGORITHMS if it is set, otherwise a file in the user's cache folder. Empty if
// neither is known.
std::filesystem::path algorithm_file(const std::string& machine);
// The table in `file`; empty if there is no file. Throws Error{usage} if it belongs to another machine.
AlgorithmTable load_algorithms(const std::filesystem::path& file, const std::string& machine);
// Throws Error{failed}.
void save_algorithms(const AlgorithmTable& table, const std::filesystem::path& file);

// The machine for which a table of `device` is valid: "NVIDIA H200 (132 SMs), cuBLASLt 13.1.0, cuDNN 9.10.2",
// everything that may affect bits. Empty if products do not have a choice of algorithms, as on the CPU.
std::string algorithm_machine(Device device);
// Times all candidates on `device` for the products that `table` lacks, and adds the fastest. Call it at set-up, before
// the arenas are allocated: it allocates and frees memory as large as the largest product's operands, and takes a few
// tenths of a second per product.
void search_algorithms(Device device, std::span<const ProductShape> shapes, AlgorithmTable& table);
// From now on, products in `lane` use the table. Products that the table lacks use the library's first proposal.
void use_algorithms(Lane& lane, const std::shared_ptr<const AlgorithmTable>& table);

}  // namespace strata::device
