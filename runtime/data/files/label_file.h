#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/classes.h"
#include "runtime/data/files/tokens.h"

namespace strata::runtime {

// The labels that the sidecar of a token file names (docs/formats.md, "Labels"), as a batch has them: by document a
// class, the bits of its classes, or the bits of a number; or by token a class, device::kIgnoredLabel where none
// counts. Throws Error{usage} if the sidecar names none, if they are of another kind than `classes` and `per_token` ask
// for, or if one is none of the classes; Error{corrupt} if the file is not what the sidecar says.
std::vector<std::int32_t> read_labels(const TokenFile& file, const models::Classes& classes, bool per_token);

}  // namespace strata::runtime
