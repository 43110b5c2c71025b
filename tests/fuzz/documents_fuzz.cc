#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/fuzz/input_file.h"
#include "text/chat/part_tokenizer.h"
#include "text/documents.h"

// The first byte says what kind of input the rest is: plain text, lines, CSV or TSV, compressed or not.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace strata;
  if (size == 0) return 0;
  const auto path = fuzz::write_input("x", data + 1, size - 1);
  static const auto tokenizer = text::load_tokenizer("byte");
  const auto kind = static_cast<text::InputKind>(data[0] % 4);
  try {
    text::DocumentReader reader({{path.string(), kind}}, true, *tokenizer);
    const text::RecordRules rules;
    text::PartTokenizer made(*tokenizer, rules);
    text::DocumentPart part;
    text::PartTokens tokens;
    while (reader.next(part)) made.run(part, tokens);
  } catch (const Error&) {
  }
  return 0;
}
