#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
// then of each round how many micro-batches are done, how many rows it has, their numbers and scores.
class PredictPart {
 public:
  static constexpr const char* kBegins = "strata predict by ";
  static std::filesystem::path path_of(const std::filesystem::path& out);

  // of_what: without line breaks; begins with kBegins; scores of other models, texts or batches are of another.
  PredictPart(std::filesystem::path path, std::string of_what, std::size_t classes);

  // What an earlier run has done of the same, by row; returns its micro-batches. Opens the file for more. Throws
  // Error{failed} if it cannot be written.
  std::uint64_t read(std::map<std::int32_t, std::vector<float>>& rows);
  // After read(). Throws Error{failed} if it cannot be written.
  void add(std::uint64_t done, std::span<const std::int32_t> rows, std::span<const float> scores);
  void remove();

 private:
  std::filesystem::path path_;
  std::string of_what_;
  std::size_t classes_;
  std::ofstream out_;
};

}  // namespace strata::launcher
