#pragma once
#include <memory>

#include "text/tokenizer.h"

namespace strata::text {

// `byte`: each byte is its own id, 256 in all, nothing added; any bytes are a text.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace strata::text
