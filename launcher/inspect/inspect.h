#pragma once
// launcher/inspect/ examines files: their kind and content, checkpoints (tensor by tensor, with statistics), adapters,
// and documents as text.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <span>
#include <string>

#include "models/files/config.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/data/files/token_sidecar.h"

namespace strata::launcher {

// Print a line for every tensor, or only for tensors with damage or non-finite numbers.
enum class Tensors { all, wrong };

// The checkpoint at a path: the folder itself, or the newest undamaged one in a folder of checkpoints. For each newer
// one that is passed over, a line on stderr says why. nullopt if the path is neither.
std::optional<runtime::Checkpoint> checkpoint_at(const std::filesystem::path& path);

// Lists the checkpoints in a folder, newest first, and marks the best one and damaged ones. Prints nothing if the
// folder contains none or is itself a checkpoint.
void list_folder(const std::filesystem::path& folder, std::ostream& out);

// Prints step, model and sizes, followed by one line per tensor and kind of state (all of them, or only faulty ones).
// Verifies every checksum. Throws Error{corrupt} at the end if a checksum does not match.
void inspect_checkpoint(const runtime::Checkpoint& checkpoint, Tensors tensors, std::ostream& out);

// Prints one line per tensor and kind of state in which two checkpoints differ, with the first difference.
void compare_checkpoints(const runtime::Checkpoint& first, const runtime::Checkpoint& second, std::ostream& out);

// `strata inspect`: prints to `out` what a checkpoint, token file, safetensors file or Hugging Face directory contains.
// Returns the exit code. Throws Error{corrupt} if a file does not contain what it claims to.
int inspect(const std::filesystem::path& path, Tensors tensors, std::ostream& out);
// Prints the differences between two checkpoints.
int inspect(const std::filesystem::path& a, const std::filesystem::path& b, std::ostream& out);

// `strata inspect OUT.bin --show N`: prints the first `number` documents as text, with the tokens that count as labels
// in green (colour: for a terminal) or in brackets. tokenizer: "byte" or a Hugging Face directory; required if the
// sidecar names a tokenizer other than `byte`. Returns the exit code; throws Error{usage} if the tokenizer is missing
// or is not the one that made the tokens.
int show_documents(const std::filesystem::path& path, std::uint64_t number,
                   const std::optional<std::filesystem::path>& tokenizer, bool colour, std::ostream& out);

// For `strata inspect` of a peft folder: prints its configuration, and a line for each fault that makes it unusable for
// any model: unsupported keys, and tensors that lack their other factor, have mismatched ranks, or contain integers.
void print_adapter(const std::filesystem::path& folder, std::ostream& out);

// For a Hugging Face directory: prints how many matrices are in 4 bits, and a line for each broken one. Prints nothing
// if no matrix is in 4 bits and config.json does not say so.
void print_quantisation(const models::Safetensors& file, const models::Config& config, std::ostream& out);

// For `strata inspect`, one line each, with its line break: the kind of labels in a token file, and the classes of a
// classifier and the data on which it was trained. Empty if there are no labels, or the model is not a classifier.
// Throws what read_classes() throws.
std::string labels_line(const runtime::TokenSidecar::Labels& labels);
std::string classes_line(const models::Config& config);

// The mean and standard deviation of the finite values, and the number of other values, for values that arrive in
// pieces. Each piece takes two passes and is then merged (Chan, Golub & LeVeque 1979), because a running sum of squares
// would lose precision by cancellation.
class Statistics {
 public:
  void add(std::span<const float> piece);

  double mean() const { return mean_; }
  double deviation() const;
  std::uint64_t non_finite() const { return non_finite_; }

 private:
  double mean_ = 0, squares_ = 0;  // squares_: the sum of squared deviations from the mean
  std::uint64_t finite_ = 0, non_finite_ = 0;
};

}  // namespace strata::launcher
