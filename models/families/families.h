#pragma once
// models/families/ has one file per family, or per group of similar families, with the meaning of their config.json,
// their tensors' names, and their layers. Open gpt2.cc first: a family reads from top to bottom like its paper.
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "models/files/config.h"
#include "models/layers/linear/linear.h"
#include "models/model.h"

namespace strata::models {

// If a file has no `model_type`, adds the type of the class in `architectures`, provided that Strata supports that
// class.
void name_family(Config& config);

// make_model() selects one of these by `model_type`.
std::unique_ptr<Model> make_gpt2(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_bert(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_distilbert(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_roberta(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_llama(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_modernbert(const Config& config, const RunShape& run);

// The maximum number of tokens in a micro-batch.
inline constexpr std::size_t kMaxTokens = std::size_t{1} << 24;

// Functions that families use to read a config. All throw Error{usage} naming the key if the value is not supported. A
// size is at most `most`, so no product of sizes overflows.
inline constexpr std::size_t kMaxWidth = std::size_t{1} << 20, kMaxLayers = std::size_t{1} << 12,
                             kMaxWords = std::size_t{1} << 24, kMaxPositions = std::size_t{1} << 31;
std::size_t size_of_key(const Config& config, std::string_view key, std::size_t most = kMaxWidth);
std::size_t size_or(const Config& config, std::string_view key, std::size_t otherwise, std::size_t most = kMaxWidth);
// A size that has a default in transformers' class. If the file does not have it, the default is used and noted
// (Config::add_note).
std::size_t size_or_default(const Config& config, std::string_view key, std::size_t otherwise,
                            std::size_t most = kMaxWidth);
// Returns whichever of a key's two names the config contains, for families whose class accepts both (`attribute_map`).
// Throws Error{usage} if the config has both with different values, and the recipe sets neither or both.
std::string_view own_or_other(const Config& config, std::string_view own, std::string_view other);
// Throws unless the activation is the exact GELU (erf) under one of its names in transformers.
void require_gelu(const Config& config, std::string_view key);
// The GELU of a family that has the exact one and the tanh approximation. Throws for other activations.
Gelu read_gelu(const Config& config, std::string_view key);
// A number that is at least 0 if `zero` is allowed, otherwise above 0.
enum class Zero { allowed, refused };
double positive_or(const Config& config, std::string_view key, double otherwise, Zero zero = Zero::refused);
// `layer_types`: true for each layer with sliding instead of full attention; empty if the key is absent.
std::vector<bool> sliding_layers(const Config& config, std::size_t layers);
float dropout_probability(const Config& config, std::string_view key, double otherwise);
void require_one_of(const Config& config, std::string_view key, std::initializer_list<std::string_view> built,
                    std::string_view otherwise);
void require_bool(const Config& config, std::string_view key, bool built, bool otherwise);
// Throws Error{usage} if the run's objective is not in the list.
void require_objective(const RunShape& run, std::string_view family, std::initializer_list<Objective> built);

// Finds keys that a config.json of a known family may have but that no family here supports: experts, soft caps, other
// scalings and positions, quantised weights, draft models. Throws Error{usage}, with a separate message for each key
// (or architecture), unless its value changes nothing. This applies even if transformers' class for that model_type
// does not read the key. Marks the other keys as read.
void refuse_unsupported_keys(const Config& config);

}  // namespace strata::models
