#pragma once

namespace strata::text {

// Character properties, as Rust's `char` and the tokenizers library define them.
bool is_whitespace(char32_t code);   // White_Space
bool is_numeric(char32_t code);      // Nd, Nl, No
bool is_punctuation(char32_t code);  // P*, and ASCII's symbols
bool is_word(char32_t code);         // Alphabetic, M*, Nd, Pc, Join_Control: \w in Unicode's regular expressions
bool is_other(char32_t code);        // Cc, Cf, Co in Unicode 8
bool is_mark(char32_t code);         // M*
bool is_nonspacing_mark(char32_t code);
bool is_chinese(char32_t code);  // a Chinese character by BERT's definition

}  // namespace strata::text
