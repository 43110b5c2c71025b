#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "runtime/data/files/tokens.h"
#include "tests/fuzz/input_file.h"

// The first byte is the sidecar's length (0: none), the next its text, the rest the token file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::size_t text = size == 0 ? 0 : std::min<std::size_t>(data[0], size - 1);
  const std::size_t begin = size == 0 ? 0 : 1 + text;
  const auto path = strata::fuzz::write_input("x.bin", data + begin, size - begin);
  if (text == 0) {
    std::filesystem::remove(strata::runtime::sidecar_path(path));
  } else {
    strata::fuzz::write_input("x.bin.json", data + 1, text);
  }
  for (const std::int64_t vocab : {300, 70000}) {
    try {
      const strata::runtime::TokenFile file(path, vocab);
      std::vector<std::uint32_t> tokens(file.count());
      file.check_all();
      file.read(0, tokens);
    } catch (const strata::Error&) {
    }
  }
  return 0;
}
