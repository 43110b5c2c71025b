#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/recipe.h"
#include "tests/fuzz/input_file.h"

// The input serves as a recipe file, and its lines also as --set arguments.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using strata::runtime::load_recipe;
  const auto path = strata::fuzz::write_input("x.toml", data, size);
  const auto use = [](const strata::runtime::Recipe& recipe) {
    (void)to_text(recipe);
    (void)recipe.accumulation_steps(3);
  };
  try {
    use(load_recipe(path, {}));
  } catch (const strata::Error&) {
  }
  std::istringstream text(std::string(reinterpret_cast<const char*>(data), size));
  for (std::string line; std::getline(text, line);) {
    try {
      use(load_recipe(std::nullopt, std::vector<std::string>{"model.preset=tiny-gpt2", line}));
    } catch (const strata::Error&) {
    }
  }
  return 0;
}
