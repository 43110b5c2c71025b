#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "models/files/safetensors.h"
#include "tests/fuzz/input_file.h"

// Any bytes are a valid file or an Error; the tensors of a valid file can be read to their last byte.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto path = strata::fuzz::write_input("x.safetensors", data, size);
  try {
    const auto file = strata::models::Safetensors::open(path);
    for (const auto& tensor : file.tensors()) {
      if (file.find(tensor.name) != &tensor) std::abort();
      if (!tensor.type || tensor.elements() == 0) continue;
      std::vector<float> last(1);
      strata::models::read_elements(tensor, 0, last);
      strata::models::read_elements(tensor, tensor.elements() - 1, last);
    }
  } catch (const strata::Error&) {
  }
  return 0;
}
