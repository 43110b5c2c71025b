#pragma once
#include <memory>

#include "text/subwords/model.h"

namespace strata::text {

// Byte-pair encoding (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909), "BPE" of a tokenizer.json. The
// neighbouring pair whose merge comes first in the list is merged, leftmost first, until none is left: n log n in a
// piece's length. `bytes`: pieces are plain bytes, each of which stands for its character in GPT-2's alphabet.
std::unique_ptr<Model> make_byte_pair(const Json& json, bool bytes);
// Whether the model accepts plain bytes: it has no prefix, suffix or fallback that looks at characters.
bool takes_bytes(const Json& json);

}  // namespace strata::text
