#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace strata::text {

// A label that seems to name several classes at once.
struct JoinedLabel {
  std::string name;                // as it stands in the data
  std::vector<std::string> parts;  // the classes that it seems to name
  char separator = ',';            // between them
  std::uint64_t more = 0;          // other labels of the kind
  bool tags = false;               // parts are tags of words: "O", "B-TYPE", "I-TYPE"
};

// The first of `classes` (names, with how many labels each has) that seems to be several: if all parts of it between
// commas, semicolons or bars are classes by themselves, or whole numbers; between spaces, slashes, "+" or "&", which
// names have too, if that is so of three of them; if labels are made of far fewer parts, each of them in several; or if
// all parts are tags.
std::optional<JoinedLabel> joined_label(const std::map<std::string, std::uint64_t>& classes);

}  // namespace strata::text
