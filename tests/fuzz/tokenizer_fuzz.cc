#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/pipeline/pipeline.h"

// Any bytes are a tokenizer.json or an Error, whatever class the files next to it name; a tokenizer takes any text,
// gives ids of its vocabulary, and decodes them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using strata::text::Pipeline;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  for (const char* of_class : {"", "BertTokenizer", "GPT2Tokenizer", "XLMRobertaTokenizer"}) try {
      const auto tokenizer = Pipeline::parse(json, "input", "fuzz", "", {.tokenizer_class = of_class});
      for (const std::string_view text :
           {std::string_view("Hello  world, it's 12 \xc3\xa9 e\xcc\x81\n\n\xe6\x97\xa5<s>"), json.substr(0, 300)}) {
        const auto ids = tokenizer->encode(text, true);
        for (const std::uint32_t id : ids) {
          if (id >= tokenizer->vocab_size()) std::abort();
        }
        (void)tokenizer->decode(ids, false);
        if (tokenizer->safe_cut(text, text.size()).next > text.size()) std::abort();
      }
    } catch (const strata::Error&) {
    }
  return 0;
}
