#pragma once
#include "text/json/json.h"
#include "text/text_template.h"

namespace strata::text {

// What "post_processor" of a tokenizer.json makes of a text, and of two. Trimming of offsets, which ByteLevel asks for,
// does not change ids.
TextTemplate make_text_template(const Json& json);

}  // namespace strata::text
