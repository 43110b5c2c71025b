#pragma once
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "models/config.h"
#include "models/model.h"

namespace strata::models {

// One function a family, each in its own file; make_model() picks by `model_type`.
std::unique_ptr<Model> make_gpt2(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_llama(const Config& config, const RunShape& run);

// What families read from a config. All throw Error{usage} naming the key where the value is not built.
std::size_t size_of_key(const Config& config, std::string_view key);
std::size_t size_or(const Config& config, std::string_view key, std::size_t otherwise);
float dropout_probability(const Config& config, std::string_view key, double otherwise);
void require_one_of(const Config& config, std::string_view key, std::initializer_list<std::string_view> built,
                    std::string_view otherwise);
void require_bool(const Config& config, std::string_view key, bool built, bool otherwise);

}  // namespace strata::models
