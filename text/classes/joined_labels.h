#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace strata::text {

// A label that seems to name several classes at once.
struct JoinedLabel {
  std::string name;                // as written in the data
  std::vector<std::string> parts;  // the classes that it seems to name
  char separator = ',';            // the separator between them
  std::uint64_t more = 0;          // the number of other labels like this one
  bool tags = false;               // the parts are tags of words: "O", "B-TYPE", "I-TYPE"
};

// The first of `classes` (names, with the number of labels of each) that seems to be several classes. It does if all
// its parts between commas, semicolons or bars are classes by themselves, or integers; if the same is true between
// spaces, slashes, "+" or "&", which names contain too, for three labels; if the labels are made of far fewer parts,
// each of them in several labels; or if all parts are tags.
std::optional<JoinedLabel> joined_label(const std::map<std::string, std::uint64_t>& classes);

}  // namespace strata::text
