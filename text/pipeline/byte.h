#pragma once
#include <memory>

#include "text/tokenizer.h"

namespace strata::text {

// The tokenizer `byte`: each byte is its own id, 256 in all. It adds nothing and accepts any bytes.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace strata::text
