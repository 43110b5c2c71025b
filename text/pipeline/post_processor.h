#pragma once
#include <cstdint>
#include <vector>

#include "text/pipeline/json.h"

namespace strata::text {

// What "post_processor" of a tokenizer.json puts before and after a single text. Trimming of offsets, which ByteLevel
// asks for, does not change ids.
struct Surroundings {
  std::vector<std::uint32_t> before, behind;
};
Surroundings make_surroundings(const Json& json);

}  // namespace strata::text
