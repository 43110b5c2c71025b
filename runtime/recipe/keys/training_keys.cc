#include <algorithm>
#include <limits>
#include <utility>

#include "base/json/json_writer.h"
#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/keys/key_kinds.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {
namespace {

using namespace kinds;
using device::DType, device::StorageFormat;

RecipeKey betas() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* list = std::get_if<std::vector<Value>>(&v.value);
    if (!list || list->size() != 2) return false;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto x = number_of((*list)[i]);
      if (!x || *x < 0 || *x >= 1) return false;
      recipe.optimizer.betas[i] = *x;
    }
    return true;
  };
  auto text = [](const Recipe& recipe) {
    return fmt::format("[{}, {}]", recipe.optimizer.betas[0], recipe.optimizer.betas[1]);
  };
  return {"optimizer.betas", "two numbers from 0 to below 1",
          "decay of adamw's first and second moment; lion's, default [0.9, 0.99]; sgd has none", set, text};
}

RecipeKey class_weights() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* list = std::get_if<std::vector<Value>>(&v.value);
    if (!list || list->empty()) return false;
    recipe.training.class_weights.clear();
    for (const Value& item : *list) {
      const auto x = number_of(item);
      if (!x || *x < 0 || *x > kHuge) return false;
      recipe.training.class_weights.push_back(*x);
    }
    return true;
  };
  auto text = [](const Recipe& recipe) {
    return recipe.training.class_weights.empty() ? std::string("none") : text_of_list(recipe.training.class_weights);
  };
  return {"training.class_weights",
          "a list of numbers >= 0, one for each class",
          "classification: the factor of each class's loss, in the order of the classes' numbers",
          set,
          text,
          most_float()};
}

RecipeKey freeze() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    auto patterns = texts_of(v);
    if (!patterns || std::ranges::any_of(*patterns, [](const auto& pattern) { return pattern.empty(); })) return false;
    recipe.training.freeze = std::move(*patterns);
    return true;
  };
  auto text = [](const Recipe& recipe) {
    return recipe.training.freeze.empty() ? std::string("none") : text_of_list(recipe.training.freeze);
  };
  return {
      "training.freeze",
      "a glob pattern of tensor names, or a list of them: * matches any characters, ? one, [...] one of those listed",
      "tensors that are not trained: they have no gradient and no optimizer state, and backward stops at the lowest "
      "trained one",
      set,
      text,
      {}};
}

// The recipe records whether it was given, because objectives other than masked_lm refuse it.
RecipeKey mlm_probability() {
  RecipeKey key =
      number("training.mlm_probability", 1e-6, 1, "a number from 1e-06 to 1", STRATA_AT(training.mlm_probability),
             "masked_lm: the share of a document's tokens that are predicted, rounded, at least one");
  key.text = [](const Recipe& recipe) { return text_of(recipe.training.mlm_probability.value_or(kMaskedShare)); };
  return key;
}

RecipeKey recompute() {
  using Kind = Recompute::Kind;
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    Recompute& recompute = recipe.training.recompute;
    if (const auto* text = std::get_if<std::string>(&v.value)) {
      for (const Kind kind : {Kind::none, Kind::block, Kind::sqrt}) {
        if (name_of(kind) != *text) continue;
        recompute = {kind, {}};
        return true;
      }
    }
    const auto* list = std::get_if<std::vector<Value>>(&v.value);
    if (!list) return false;
    recompute = {Kind::list, {}};
    for (const Value& item : *list) {
      const auto* block = std::get_if<std::int64_t>(&item.value);
      if (!block || *block < 0 || *block > kMany) return false;
      recompute.blocks.push_back(*block);
    }
    std::sort(recompute.blocks.begin(), recompute.blocks.end());
    return std::adjacent_find(recompute.blocks.begin(), recompute.blocks.end()) == recompute.blocks.end();
  };
  auto text = [](const Recipe& recipe) {
    const auto& [kind, blocks] = recipe.training.recompute;
    return kind == Kind::list ? text_of_list(blocks) : json_string(name_of(kind));
  };
  return {
      "training.recompute",
      "\"none\", \"block\", \"sqrt\" or a list of different block numbers",
      "blocks that repeat their forward in backward instead of keeping activations: none; block: all, one by one, each "
      "from its kept input; sqrt: all L blocks, in groups of sqrt(L) (rounded up), each group from the input of its "
      "first block, so that fewer inputs are kept, but for a time a group's activations; or the listed blocks",
      set,
      text,
      most_of(kMany)};
}

RecipeKey micro_batch_size() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* text = std::get_if<std::string>(&v.value);
    const auto* number = std::get_if<std::int64_t>(&v.value);
    if (number && *number > 0 && *number <= kMaxSequences)
      recipe.training.micro_batch_size = *number;
    else if (text && *text == "auto")
      recipe.training.micro_batch_size = kAutomaticBatch;
    else
      return false;
    return true;
  };
  auto text = [](const Recipe& recipe) {
    const std::int64_t size = recipe.training.micro_batch_size;
    return size == kAutomaticBatch ? json_string("auto") : text_of(size);
  };
  return {"training.micro_batch_size", fmt::format("\"auto\" or an integer from 1 to {}", kMaxSequences),
          "sequences per rank and micro-batch; auto: the largest that fits memory.device, found once by planning; a "
          "resumed run keeps its checkpoint's",
          set, text};
}

}  // namespace

std::vector<RecipeKey> training_keys() {
  return {
      choice<models::Objective>("training.objective",
                                {{"causal_lm", models::Objective::causal_lm},
                                 {"masked_lm", models::Objective::masked_lm},
                                 {"sequence_classification", models::Objective::sequence_classification},
                                 {"token_classification", models::Objective::token_classification}},
                                STRATA_AT(training.objective),
                                "what the model is trained on; default: what the architectures in its configuration "
                                "name, otherwise masked_lm for encoders, causal_lm for others"),
      mlm_probability(),
      class_weights(),
      freeze(),
      integer("training.max_steps", 0, kMany, STRATA_AT(training.max_steps),
              "optimizer steps; 0 reads, plans, checks, prints the number of steps in an epoch, and exits"),
      micro_batch_size(),
      integer("training.gradient_accumulation_steps", 1, 1 << 24, STRATA_AT(training.gradient_accumulation_steps),
              "micro-batches per rank and step; 1 if neither this nor global_batch_size is given"),
      integer("training.global_batch_size", 1, kMany, STRATA_AT(training.global_batch_size),
              "sequences per step over all ranks, instead of training.gradient_accumulation_steps"),
      choice<DType>("training.precision", {{"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}},
                    STRATA_AT(training.precision), "dtype of parameters, activations and gradients; masters are fp32"),
      integer("training.seed", 0, std::numeric_limits<std::int64_t>::max(), STRATA_AT(training.seed),
              "seed of random weights, data order and dropout"),
      number("training.max_grad_norm", 0, kHuge, "a number >= 0", STRATA_AT(training.max_grad_norm),
             "clip the gradient's norm to this; 0: no clipping"),
      choice<Reduce>("training.reduce", {{"ordered", Reduce::ordered}, {"fast", Reduce::fast}},
                     STRATA_AT(training.reduce),
                     "exchange and add gradients after each micro-batch, in global order, or add them locally and "
                     "exchange once per step"),
      integer("training.reduce_group", 1, 1 << 20, STRATA_AT(training.reduce_group),
              "consecutive micro-batches whose gradients are summed in fp32 and rounded to training.precision before "
              "they are added to those of others; a divisor of the micro-batches of a step over all ranks. A different "
              "value rounds differently"),
      recompute(),
  };
}

std::vector<RecipeKey> optimizer_keys() {
  return {
      choice<OptimizerName>("optimizer.name",
                            {{"adamw", OptimizerName::adamw},
                             {"adamw8bit", OptimizerName::adamw8bit},
                             {"lion", OptimizerName::lion},
                             {"sgd", OptimizerName::sgd}},
                            STRATA_AT(optimizer.name), "the update rule; adamw8bit: adamw with 8-bit moments"),
      choice<StorageFormat>(
          "optimizer.moments",
          {{"fp32", StorageFormat::fp32}, {"bf16", StorageFormat::bf16}, {"8bit", StorageFormat::block8}},
          STRATA_AT(optimizer.moments),
          "format of the moments: fp32 unless the name says 8bit; bf16 is rounded stochastically; 8bit keeps those of "
          "embeddings, biases, gains and tensors below 4,096 elements in fp32"),
      number("optimizer.learning_rate", 0, kHuge, "a number >= 0", STRATA_AT(optimizer.learning_rate),
             "peak of the learning rate"),
      betas(),
      number("optimizer.eps", kTiny, kHuge, "a number from 1e-30", STRATA_AT(optimizer.eps),
             "added to adamw's denominator"),
      number("optimizer.momentum", 0, 1, "a number from 0 to below 1", STRATA_AT(optimizer.momentum),
             "decay of sgd's moment, without dampening", true),
      number("optimizer.weight_decay", 0, kHuge, "a number >= 0", STRATA_AT(optimizer.weight_decay),
             "decay of matrices and embeddings, not of biases and gains: decoupled; sgd's, as in PyTorch, is added to "
             "the gradient (after clipping)"),
  };
}

std::vector<RecipeKey> scheduler_keys() {
  return {
      choice<Decay>(
          "scheduler.name",
          {{"constant", Decay::constant}, {"linear", Decay::linear}, {"cosine", Decay::cosine}, {"wsd", Decay::wsd}},
          STRATA_AT(scheduler.name), "the learning rate after the warmup"),
      integer("scheduler.warmup_steps", 0, kMany, STRATA_AT(scheduler.warmup_steps),
              "steps of linear learning-rate warmup"),
      number("scheduler.min_lr_ratio", 0, 1, "a number from 0 to 1", STRATA_AT(scheduler.min_lr_ratio),
             "learning rate at the last step, as a fraction of the peak"),
  };
}

std::vector<RecipeKey> fp16_keys() {
  return {
      number("fp16.initial_scale", 0x1p-126, kHuge, "a number > 0", STRATA_AT(fp16.initial_scale),
             "loss scale of the first step; a gradient that is not finite halves it and skips the step; a forward that "
             "is not finite only skips the step, because no scale can fix it, and the third in a row ends the run"),
      integer("fp16.growth_interval", 1, kMany, STRATA_AT(fp16.growth_interval),
              "steps without an overflow after which the scale doubles"),
  };
}

}  // namespace strata::runtime
