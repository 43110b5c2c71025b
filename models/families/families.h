#pragma once
// models/families/ has a file per family: what its config.json means, its tensors' names, and the layers it is made of.
// Open gpt2.cc first: a family reads from top to bottom like its paper.
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "models/files/config.h"
#include "models/model.h"

namespace strata::models {

// A file without `model_type` gets that of the class that its `architectures` name, if one of ours begins so.
void name_family(Config& config);

// One function a family, each in its own file; make_model() picks by `model_type`.
std::unique_ptr<Model> make_gpt2(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_bert(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_distilbert(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_roberta(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_llama(const Config& config, const RunShape& run);
std::unique_ptr<Model> make_modernbert(const Config& config, const RunShape& run);

// Tokens of a micro-batch, at most.
inline constexpr std::size_t kMostTokens = std::size_t{1} << 24;

// What families read from a config. All throw Error{usage} naming the key if the value is not supported.
// A size is at most `most`, so that no product of sizes overflows.
inline constexpr std::size_t kMostWidth = std::size_t{1} << 20, kMostLayers = std::size_t{1} << 12,
                             kMostWords = std::size_t{1} << 24, kMostPositions = std::size_t{1} << 31;
std::size_t size_of_key(const Config& config, std::string_view key, std::size_t most = kMostWidth);
std::size_t size_or(const Config& config, std::string_view key, std::size_t otherwise, std::size_t most = kMostWidth);
// A size that transformers' class has a value for if the file has none; which is then said (Config::remark).
std::size_t size_or_default(const Config& config, std::string_view key, std::size_t otherwise,
                            std::size_t most = kMostWidth);
// The one of a key's two names that the config has, for families whose class knows both (`attribute_map`). Throws
// Error{usage} if it has both, with different values, and the recipe gives neither or both.
std::string_view own_or_other(const Config& config, std::string_view own, std::string_view other);
// Throws unless the activation is GELU by one of its names in transformers: exact (erf), or its approximation by tanh.
void require_gelu(const Config& config, std::string_view key);
void require_gelu_tanh(const Config& config, std::string_view key);
// A number from 0 if `zero` is given, else above 0.
enum class Zero { allowed, refused };
double positive_or(const Config& config, std::string_view key, double otherwise, Zero zero = Zero::refused);
// `layer_types`: by layer, whether its attention is sliding rather than full; empty if the key is absent.
std::vector<bool> sliding_layers(const Config& config, std::size_t layers);
float dropout_probability(const Config& config, std::string_view key, double otherwise);
void require_one_of(const Config& config, std::string_view key, std::initializer_list<std::string_view> built,
                    std::string_view otherwise);
void require_bool(const Config& config, std::string_view key, bool built, bool otherwise);
// Throws Error{usage} if the run's objective is none of these.
void require_objective(const RunShape& run, std::string_view family, std::initializer_list<Objective> built);

}  // namespace strata::models
