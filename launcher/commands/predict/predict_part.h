#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/descriptor.h"
#include "runtime/job/score_memory.h"

namespace strata::launcher {

// The first row of `classes` scores of which one is infinite or no number.
std::optional<std::size_t> row_not_finite(std::span<const float> scores, std::size_t classes);

// Refuses files beside OUT that bear the names of what a prediction writes there, unless OUT.part says that an earlier
// prediction made them: throws Error{usage} that names the file.
void require_free_names(const std::filesystem::path& part, const std::vector<std::filesystem::path>& others);

// Says in OUT.part, if there is none, that the files beside it are a prediction's: before they are there. A prediction
// that is killed before its first round leaves them to the next one.
void claim_names(const std::filesystem::path& part);
// Removes the file again if nothing but that stands in it.
void give_up_names(const std::filesystem::path& part);

// Scores of rows as they come, in OUT.part, so that a prediction which was stopped goes on: a line that says of what,
// then of each round how many micro-batches are done, how many rows it has, their numbers and scores. In memory are
// only the places of rows in the file.
class PredictPart {
 public:
  static constexpr const char* kBegins = "strata predict by ";
  static std::filesystem::path path_of(const std::filesystem::path& out);

  // of_what: without line breaks; begins with kBegins; scores of other models, texts or batches are of another.
  // places: room for all rows; outlives this.
  PredictPart(std::filesystem::path path, std::string of_what, std::size_t classes,
              std::span<runtime::RowPlace> places);

  // Opens the file, of which what an earlier run has done of the same stays; returns its micro-batches. Throws
  // Error{failed}, or Error{does_not_fit} for lack of room, if it cannot be written; add() too.
  std::uint64_t open();
  // After open().
  void add(std::uint64_t done, std::span<const std::int32_t> rows, std::span<const float> scores);
  std::size_t rows() const { return rows_; }
  // Every row in the order of their numbers, read again. Throws Error{failed} if the file cannot be read.
  void each_row(const std::function<void(std::int64_t row, std::span<const float> scores)>& f);
  void remove();

 private:
  std::size_t row_bytes() const { return sizeof(std::int32_t) + classes_ * sizeof(float); }
  // All of `out`, from the byte `at` on; false: the file ends before.
  bool read(std::uint64_t at, std::span<std::byte> out) const;
  void write(std::span<const std::byte> bytes);
  // Of a round behind `at`: how many micro-batches are done then; 0: there is none, or not all of it.
  std::uint64_t read_round(std::uint64_t& at, std::uint64_t size);

  std::filesystem::path path_;
  std::string of_what_;
  std::size_t classes_;
  std::span<runtime::RowPlace> places_;
  std::size_t rows_ = 0;
  std::uint64_t end_ = 0;  // of the file
  Descriptor file_;
  std::vector<std::byte> round_;
};

}  // namespace strata::launcher
