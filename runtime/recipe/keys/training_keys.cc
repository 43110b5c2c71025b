#include <algorithm>
#include <limits>
#include <utility>

#include "base/json/json_writer.h"
#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/keys/key_kinds.h"

namespace strata::runtime {
namespace {

using namespace kinds;
using device::DType, device::StorageFormat;

RecipeKey betas() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    const auto betas = list_in(v, [](const Value& item) { return number_in(item, 0, 1, true); });
    if (!betas || betas->size() != 2) return false;
    recipe.optimizer.betas = {betas->front(), betas->back()};
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
    auto weights = list_in(v, [](const Value& item) { return number_in(item, 0, kHuge); });
    return weights && !weights->empty() && store(std::move(weights), recipe.training.class_weights);
  };
  auto text = [](const Recipe& recipe) { return text_or_none(recipe.training.class_weights); };
  return {"training.class_weights",
          "a list of numbers >= 0, one for each class",
          "classification: the factor of each class's loss, in the order of the classes' numbers",
          set,
          text,
          max_float()};
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
    const auto* text = std::get_if<std::string>(&v.value);
    for (const Kind kind : {Kind::none, Kind::block, Kind::sqrt}) {
      if (!text || name_of(kind) != *text) continue;
      recompute = {kind, {}};
      return true;
    }
    auto blocks = list_in(v, [](const Value& item) { return integer_in(item, 0, kMany); });
    if (!blocks) return false;
    std::ranges::sort(*blocks);
    recompute = {blocks->empty() ? Kind::none : Kind::list, std::move(*blocks)};
    return std::ranges::adjacent_find(recompute.blocks) == recompute.blocks.end();
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
      "first block, which keeps fewer inputs but, for a time, the activations of a group; or the listed blocks (an "
      "empty list: none)",
      set,
      text,
      most_of(kMany)};
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
                                "the training objective; default: the one that the architectures in its configuration "
                                "name, otherwise masked_lm for encoders, causal_lm for others"),
      mlm_probability(),
      class_weights(),
      names("training.freeze",
            "a glob pattern of tensor names, or a list of them: * matches any characters, ? one, [...] one of those "
            "listed",
            STRATA_AT(training.freeze),
            "tensors that are not trained: they have no gradient and no optimizer state, and backward stops at the "
            "lowest trained one"),
      integer("training.max_steps", 0, kMany, STRATA_AT(training.max_steps),
              "optimizer steps; 0 reads, plans, checks, prints the number of steps in an epoch, and exits"),
      integer_or<std::int64_t>(
          "training.micro_batch_size", {{"auto", kAutomaticBatch}}, kMaxSequences, STRATA_AT(training.micro_batch_size),
          "sequences per rank and micro-batch; auto: the largest that fits memory.device, found once by planning; a "
          "resumed run keeps its checkpoint's"),
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
             "peak learning rate"),
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
