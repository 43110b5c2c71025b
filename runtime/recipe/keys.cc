#include "runtime/recipe/keys.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "models/files/presets.h"
#include "runtime/recipe/key_kinds.h"
#include "runtime/recipe/user_path.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {
namespace {

using namespace kinds;

RecipeKey resume() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path& folder) {
    const auto* text = std::get_if<std::string>(&v.value);
    if (!text || text->empty()) return false;
    refuse_zero_bytes("checkpoint.resume", *text);
    const bool word = *text == "auto" || *text == "none";
    recipe.checkpoint.resume = word ? *text : user_path(*text, folder).string();
    return true;
  };
  return {
      "checkpoint.resume",
      "\"auto\", \"none\" or a path",
      "auto: the newest whole checkpoint of checkpoint.dir, if any; none; or a path: of a checkpoint, or of a folder "
      "whose newest whole one is taken",
      set,
      [](const Recipe& recipe) { return text_of(recipe.checkpoint.resume); },
      {}};
}

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
  return {"optimizer.betas",
          "two numbers from 0 to below 1",
          "decay of adamw's first and second moment; lion's, default [0.9, 0.99]; sgd has none",
          set,
          text,
          {}};
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
          "a list of numbers from 0, one for each class",
          "classification: what a class's loss is multiplied by, in the order of the classes' numbers",
          set,
          text,
          {}};
}

// Whether it was given is kept: another objective than masked_lm refuses it.
RecipeKey mlm_probability() {
  RecipeKey key =
      number("training.mlm_probability", 1e-6, 1, "a number from 1e-06 to 1", STRATA_AT(training.mlm_probability),
             "masked_lm: the share of a document's tokens that are predicted, rounded, and one at least");
  key.text = [](const Recipe& recipe) { return text_of(recipe.training.mlm_probability.value_or(kMaskedShare)); };
  return key;
}

RecipeKey recompute() {
  using Kind = Recompute::Kind;
  static constexpr std::pair<std::string_view, Kind> kKinds[] = {
      {"none", Kind::none}, {"block", Kind::block}, {"sqrt", Kind::sqrt}};
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    Recompute& recompute = recipe.training.recompute;
    if (const auto* text = std::get_if<std::string>(&v.value)) {
      for (const auto& [name, kind] : kKinds) {
        if (name != *text) continue;
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
    for (const auto& [name, kind] : kKinds) {
      if (kind == recipe.training.recompute.kind) return json_string(name);
    }
    return text_of_list(recipe.training.recompute.blocks);
  };
  return {
      "training.recompute",
      "\"none\", \"block\", \"sqrt\" or a list of different block numbers",
      "blocks that run forward again in backward instead of keeping activations: none, all, every sqrt(L)-th, or these",
      set,
      text,
      {}};
}

RecipeKey but_only(RecipeKey key, std::function<bool(const Value&)> built) {
  key.not_built = [built = std::move(built)](const Value& v) { return !built(v); };
  return key;
}
bool is_one(const Value& v) {
  return number_of(v) == 1.0;
}

// HOST:PORT, or [ADDRESS]:PORT of IPv6.
bool is_host_and_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  if (host.find(':') != std::string_view::npos && !(host.starts_with('[') && host.ends_with(']'))) return false;
  int number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return error == std::errc{} && end == port.data() + port.size() && number >= 0 && number <= 65'535;
}

// Where to listen: a word, HOST:PORT, or (`sockets`) unix:PATH.
template <typename At>
RecipeKey listen(std::string name, std::vector<std::string> words, bool sockets, At at, std::string meaning) {
  auto set = [=](Recipe& recipe, const Value& v, const fs::path& folder) {
    const auto* text = std::get_if<std::string>(&v.value);
    if (!text) return false;
    refuse_zero_bytes(name, *text);
    constexpr std::string_view kUnix = "unix:";
    if (sockets && text->starts_with(kUnix) && text->size() > kUnix.size()) {
      at(recipe) = std::string(kUnix) + user_path(text->substr(kUnix.size()), folder).string();
      return true;
    }
    at(recipe) = *text;
    return std::find(words.begin(), words.end(), *text) != words.end() || is_host_and_port(*text);
  };
  std::string allowed;
  for (const std::string& word : words) allowed += json_string(word) + ", ";
  allowed += sockets ? "\"unix:PATH\" or \"HOST:PORT\"" : "or \"HOST:PORT\"";
  if (!sockets) allowed.erase(allowed.find(", or"), 1);
  return {name, std::move(allowed), std::move(meaning), set, [at](const Recipe& recipe) { return text_of(at(recipe)); },
          {}};
}

template <typename At>
RecipeKey text(std::string name, std::string allowed, At at, std::string meaning) {
  auto set = [=](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* given = std::get_if<std::string>(&v.value);
    if (given) at(recipe) = *given;
    return given != nullptr;
  };
  return {std::move(name),
          std::move(allowed),
          std::move(meaning),
          set,
          [at](const Recipe& recipe) { return text_of(at(recipe)); },
          {}};
}

RecipeKey sources() {
  // A table {files, weight}; nullopt if it is none.
  const auto source_of = [](const Value& v, const fs::path& folder) -> std::optional<DataSource> {
    const auto* table = std::get_if<RecipeTable>(&v.value);
    if (!table) return std::nullopt;
    DataSource out;
    for (const auto& [name, value] : *table) {
      if (name == "files")
        out.files = patterns_of("data.train", value, folder).value_or(std::vector<std::string>{});
      else if (name == "weight")
        out.weight = number_of(value).value_or(0);
      else
        return std::nullopt;
    }
    if (out.files.empty() || !(out.weight > 0)) return std::nullopt;
    return out;
  };
  auto set = [source_of](Recipe& recipe, const Value& v, const fs::path& folder) {
    std::vector<DataSource> out;
    const auto* list = std::get_if<std::vector<Value>>(&v.value);
    if (list && !list->empty() && std::holds_alternative<RecipeTable>(list->front().value)) {
      for (const Value& item : *list) {
        auto source = source_of(item, folder);
        if (!source) return false;
        out.push_back(std::move(*source));
      }
    } else {
      auto files = patterns_of("data.train", v, folder);
      if (!files) return false;
      if (!files->empty()) out.push_back({std::move(*files)});
    }
    recipe.data.train = std::move(out);
    return true;
  };
  auto text = [](const Recipe& recipe) {
    const auto& train = recipe.data.train;
    if (train.empty()) return std::string("[]");
    if (train.size() == 1) return text_of_list(train.front().files);
    std::string out;
    for (const DataSource& source : train)
      out += fmt::format("{}{{files = {}, weight = {}}}", out.empty() ? "" : ", ", text_of_list(source.files),
                         source.weight);
    return "[" + out + "]";
  };
  return {"data.train",
          "a path or glob, a list of them, or a list of tables {files = ..., weight = ...} with weights above 0",
          "token files to train on; of several sources, how often a sequence comes from each (weight, 1 where not "
          "given)",
          set,
          text,
          {}};
}

RecipeKey preset() {
  Choices<std::string> names;
  for (const std::string_view name : models::preset_names()) names.emplace_back(name, name);
  return choice<std::string>("model.preset", std::move(names), {}, STRATA_AT(model.preset), "or a named shape");
}

RecipeKey max_sequences() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* text = std::get_if<std::string>(&v.value);
    const auto* number = std::get_if<std::int64_t>(&v.value);
    if (number && *number > 0 && *number <= kMany)
      recipe.evaluation.max_sequences = *number;
    else if (text && *text == "all")
      recipe.evaluation.max_sequences = std::nullopt;
    else
      return false;
    return true;
  };
  auto text = [](const Recipe& recipe) {
    const auto& most = recipe.evaluation.max_sequences;
    return most ? text_of(*most) : json_string("all");
  };
  return {"evaluation.max_sequences",
          "\"all\" or an integer from 1",
          "sequences of data.validation that an evaluation reads, the first ones",
          set,
          text,
          {}};
}

RecipeKey micro_batch_size() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* text = std::get_if<std::string>(&v.value);
    const auto* number = std::get_if<std::int64_t>(&v.value);
    if (number && *number > 0 && *number <= kMostSequences)
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
  return {"training.micro_batch_size",
          fmt::format("\"auto\" or an integer from 1 to {}", kMostSequences),
          "sequences per rank and micro-batch; auto: the largest that fits memory.device, found once by planning; a "
          "resumed run keeps its checkpoint's",
          set,
          text,
          {}};
}

RecipeKey trace_steps() {
  const auto range_of = [](const Value& v) -> std::optional<StepRange> {
    StepRange range{};
    if (const auto* step = std::get_if<std::int64_t>(&v.value)) {
      range = {*step, *step};
    } else if (const auto* text = std::get_if<std::string>(&v.value)) {
      const char *begin = text->data(), *end = begin + text->size();
      auto [at, error] = std::from_chars(begin, end, range.first);
      if (error != std::errc{}) return std::nullopt;
      range.last = range.first;
      if (at != end && *at == '-') {
        const auto rest = std::from_chars(at + 1, end, range.last);
        at = rest.ptr;
        error = rest.ec;
      }
      if (error != std::errc{} || at != end) return std::nullopt;
    }
    if (range.first < 1 || range.last < range.first || range.last > kMany) return std::nullopt;
    return range;
  };
  auto set = [range_of](Recipe& recipe, const Value& v, const fs::path&) {
    std::vector<StepRange> steps;
    const auto* list = std::get_if<std::vector<Value>>(&v.value);
    for (const Value& item : list ? *list : std::vector<Value>{v}) {
      const auto range = range_of(item);
      if (!range) return false;
      steps.push_back(*range);
    }
    std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const auto overlap = [](const auto& a, const auto& b) { return a.last >= b.first; };
    if (std::adjacent_find(steps.begin(), steps.end(), overlap) != steps.end()) return false;
    recipe.report.trace_steps = std::move(steps);
    return true;
  };
  return {"report.trace_steps",
          "a step from 1, a range \"3-5\", or a list of these without overlap",
          "steps in report.trace, each issued task by task and waited for to its last task; default: the last one",
          set,
          [](const Recipe& recipe) { return steps_text(recipe.report.trace_steps); },
          {}};
}

template <typename At>
RecipeKey tier(std::string name, At at, std::string meaning) {
  return choice<Tier>(std::move(name), {{"device", Tier::device}, {"host", Tier::host}, {"nvme", Tier::nvme}}, {}, at,
                      std::move(meaning));
}

std::vector<RecipeKey> make_keys() {
  using device::DType, device::MomentFormat;
  return {
      path("model.path", STRATA_AT(model.path), "Hugging Face directory: config.json and safetensors"),
      preset(),
      choice<Init>("model.init", {{"pretrained", Init::pretrained}, {"random", Init::random}}, {},
                   STRATA_AT(model.init), "weights from model.path, or drawn from training.seed"),
      sources(),
      paths("data.validation", "a path or glob, or a list of them", STRATA_AT(data.validation),
            "token files to evaluate on"),
      integer("data.seq_len", 1, 1 << 24, STRATA_AT(data.seq_len), "tokens per sequence"),
      choice<DataOrder>("data.order", {{"shuffle", DataOrder::shuffle}, {"sequential", DataOrder::sequential}}, {},
                        STRATA_AT(data.order), "order of the sequences; shuffle depends on training.seed alone"),
      choice<Packing>(
          "data.packing",
          {{"auto", Packing::automatic}, {"stream", Packing::stream}, {"documents", Packing::documents}}, {},
          STRATA_AT(data.packing),
          "cut one stream of tokens, or let whole documents share sequences without seeing each other; auto: documents "
          "if a token file has a mask or labels"),
      choice<LongDocuments>(
          "data.long", {{"cut", LongDocuments::cut}, {"drop", LongDocuments::drop}, {"refuse", LongDocuments::refuse}},
          {}, STRATA_AT(data.long_documents), "what becomes of documents above data.seq_len, if documents are packed"),
      flag("data.any_tokenizer", STRATA_AT(data.any_tokenizer),
           "accept tokens of another tokenizer than the one that model.path comes with"),
      choice<models::Objective>(
          "training.objective",
          {{"causal_lm", models::Objective::causal_lm},
           {"masked_lm", models::Objective::masked_lm},
           {"sequence_classification", models::Objective::sequence_classification},
           {"token_classification", models::Objective::token_classification}},
          {}, STRATA_AT(training.objective),
          "what the model learns; default: what the architectures of its configuration name, else masked_lm for "
          "encoders, causal_lm for others"),
      mlm_probability(),
      class_weights(),
      integer("training.max_steps", 0, kMany, STRATA_AT(training.max_steps),
              "optimizer steps; 0 reads, plans, checks and exits"),
      micro_batch_size(),
      integer("training.gradient_accumulation_steps", 1, 1 << 24, STRATA_AT(training.gradient_accumulation_steps),
              "micro-batches per rank and step; 1 if neither this nor global_batch_size is given"),
      integer("training.global_batch_size", 1, kMany, STRATA_AT(training.global_batch_size),
              "or sequences per step over all ranks"),
      choice<DType>("training.precision", {{"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}}, {},
                    STRATA_AT(training.precision), "dtype of parameters, activations and gradients; masters are fp32"),
      integer("training.seed", 0, std::numeric_limits<std::int64_t>::max(), STRATA_AT(training.seed),
              "seed of random weights, data order and dropout"),
      number("training.max_grad_norm", 0, kHuge, "a number from 0", STRATA_AT(training.max_grad_norm),
             "clip the gradient's norm to this; 0: no clipping"),
      choice<Reduce>("training.reduce", {{"ordered", Reduce::ordered}, {"fast", Reduce::fast}}, {},
                     STRATA_AT(training.reduce),
                     "exchange and add gradients after each micro-batch, in global order, or add them locally and "
                     "exchange once per step"),
      but_only(integer("training.reduce_group", 1, 1 << 20, STRATA_AT(training.reduce_group),
                       "number of consecutive micro-batches whose gradients are summed first"),
               is_one),
      recompute(),
      choice<OptimizerName>("optimizer.name",
                            {{"adamw", OptimizerName::adamw},
                             {"adamw8bit", OptimizerName::adamw8bit},
                             {"lion", OptimizerName::lion},
                             {"sgd", OptimizerName::sgd}},
                            {}, STRATA_AT(optimizer.name), "the update rule; adamw8bit: adamw with 8-bit moments"),
      choice<MomentFormat>(
          "optimizer.moments",
          {{"fp32", MomentFormat::fp32}, {"bf16", MomentFormat::bf16}, {"8bit", MomentFormat::block8}}, {},
          STRATA_AT(optimizer.moments),
          "format of the moments: fp32 unless the name says 8bit; bf16 is rounded stochastically; 8bit keeps those of "
          "embeddings, biases, gains and tensors below 4,096 elements in fp32"),
      number("optimizer.learning_rate", 0, kHuge, "a number from 0", STRATA_AT(optimizer.learning_rate),
             "peak of the learning rate"),
      betas(),
      number("optimizer.eps", kTiny, kHuge, "a number from 1e-30", STRATA_AT(optimizer.eps),
             "added to adamw's denominator"),
      number("optimizer.momentum", 0, 1, "a number from 0 to below 1", STRATA_AT(optimizer.momentum),
             "decay of sgd's moment, without dampening", true),
      number("optimizer.weight_decay", 0, kHuge, "a number from 0", STRATA_AT(optimizer.weight_decay),
             "decay of matrices and embeddings, not of biases and gains: decoupled; sgd's, as in PyTorch, is added to "
             "the gradient (after clipping)"),
      choice<Decay>(
          "scheduler.name",
          {{"constant", Decay::constant}, {"linear", Decay::linear}, {"cosine", Decay::cosine}, {"wsd", Decay::wsd}},
          {}, STRATA_AT(scheduler.name), "the learning rate after warm-up"),
      integer("scheduler.warmup_steps", 0, kMany, STRATA_AT(scheduler.warmup_steps), "steps of linear rise"),
      number("scheduler.min_lr_ratio", 0, 1, "a number from 0 to 1", STRATA_AT(scheduler.min_lr_ratio),
             "learning rate at the last step, as a fraction of the peak"),
      integer("zero.stage", 0, 3, STRATA_AT(zero.stage),
              "what is sharded over the ranks: 1 optimizer, 2 also gradients, 3 also parameters"),
      tier("zero.parameters", STRATA_AT(zero.parameters), "tier of the parameters"),
      tier("zero.gradients", STRATA_AT(zero.gradients), "tier of the gradients"),
      tier("zero.optimizer", STRATA_AT(zero.optimizer), "tier of masters and moments"),
      tier("zero.activations", STRATA_AT(zero.activations), "tier of the kept activations"),
      size("memory.device", STRATA_AT(memory.device), "device memory per rank; default: what is available"),
      size("memory.host", STRATA_AT(memory.host), "host memory per rank; default: what is available"),
      paths("memory.nvme", "a folder or a list of folders, one per drive", STRATA_AT(memory.nvme),
            "where the nvme tier keeps its files"),
      integer(
          "memory.prefetch", 0, 1 << 16, STRATA_AT(memory.prefetch),
          "units looked ahead: at most this + 1 are gathered at once, besides a tied embedding; 0 also keeps the first "
          "unit's state on NVMe from being read before a step begins"),
      choice<AccumulationOrder>("memory.order",
                                {{"auto", AccumulationOrder::automatic},
                                 {"horizontal", AccumulationOrder::horizontal},
                                 {"vertical", AccumulationOrder::vertical}},
                                {}, STRATA_AT(memory.order),
                                "micro-batch by micro-batch, or unit by unit; auto: the faster one, as planned"),
      flag("memory.verify", STRATA_AT(memory.verify),
           "keep a checksum of every page of the nvme tier, and compare it when the page is read"),
      choice<std::optional<offload::Engine>>("memory.io_engine",
                                             {{"auto", std::nullopt},
                                              {"io_uring", offload::Engine::io_uring},
                                              {"libaio", offload::Engine::libaio},
                                              {"threads", offload::Engine::threads}},
                                             {}, STRATA_AT(memory.io_engine),
                                             "how the nvme tier is read and written; auto: the first that works"),
      flag_or_auto("memory.io_direct", STRATA_AT(memory.io_direct),
                   "bypass the page cache (O_DIRECT); auto: if the file system allows it"),
      flag_or_auto("memory.io_registered", STRATA_AT(memory.io_registered),
                   "io_uring's registered buffers; auto: if the limit of locked memory allows them"),
      choice<DeviceKind>("device.kind",
                         {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}}, {},
                         STRATA_AT(device.kind), "what computes; auto: a GPU if one can be used, else the CPU"),
      integer("device.threads", 1, 256, STRATA_AT(device.threads),
              "CPU threads of this rank; default: cores / ranks on the node"),
      choice<comm::Backend>("comm.backend",
                            {{"auto", comm::Backend::automatic},
                             {"solo", comm::Backend::solo},
                             {"threads", comm::Backend::threads},
                             {"mpi", comm::Backend::mpi},
                             {"nccl", comm::Backend::nccl}},
                            {}, STRATA_AT(comm.backend), "what connects the ranks; auto: NCCL between GPUs"),
      choice<comm::Transport>("comm.transport",
                              {{"auto", comm::Transport::automatic},
                               {"shared", comm::Transport::shared_memory},
                               {"messages", comm::Transport::messages}},
                              {}, STRATA_AT(comm.transport), "transport between ranks of one node"),
      number("fp16.initial_scale", 0x1p-126, kHuge, "a number above 0", STRATA_AT(fp16.initial_scale),
             "loss scale of the first step"),
      integer("fp16.growth_interval", 1, kMany, STRATA_AT(fp16.growth_interval),
              "steps without an overflow after which the scale doubles"),
      path("checkpoint.dir", STRATA_AT(checkpoint.dir), "where checkpoints are written"),
      integer("checkpoint.every", 0, kMany, STRATA_AT(checkpoint.every),
              "steps between checkpoints; with checkpoint.dir, one is always written after the last step and where a "
              "run is "
              "stopped"),
      integer("checkpoint.keep", 1, kMany, STRATA_AT(checkpoint.keep), "number of newest checkpoints to keep"),
      resume(),
      integer("checkpoint.stop_after", 0, kMany, STRATA_AT(checkpoint.stop_after),
              "write a checkpoint after this step and exit 75; 0: never"),
      flag("checkpoint.keep_best", STRATA_AT(checkpoint.keep_best),
           "write a checkpoint at each new best evaluation, by evaluation.metric, and keep the best one beside the "
           "newest"),
      integer("evaluation.every", 0, kMany, STRATA_AT(evaluation.every),
              "steps between evaluations on data.validation while training; 0: none"),
      flag("evaluation.at_start", STRATA_AT(evaluation.at_start), "evaluate before the first step, too"),
      max_sequences(),
      choice<std::string>("evaluation.metric",
                          {{"eval_loss", "eval_loss"},
                           {"eval_accuracy", "eval_accuracy"},
                           {"eval_f1", "eval_f1"},
                           {"eval_f1_micro", "eval_f1_micro"},
                           {"eval_precision", "eval_precision"},
                           {"eval_recall", "eval_recall"},
                           {"eval_matthews", "eval_matthews"},
                           {"eval_roc_auc", "eval_roc_auc"},
                           {"eval_pearson", "eval_pearson"}},
                          {}, STRATA_AT(evaluation.metric), "which result of an evaluation says what is best"),
      flag_or_auto("evaluation.greater_is_better", STRATA_AT(evaluation.greater_is_better),
                   "whether a higher value is the better one; auto: as the metric has it"),
      integer("evaluation.patience", 0, kMany, STRATA_AT(evaluation.patience),
              "end the run after so many evaluations in a row without a better one; 0: never"),
      path("evaluation.prompts", STRATA_AT(evaluation.prompts),
           "file of prompts, one per line, that are answered at each evaluation, into report.jsonl"),
      listen("control.listen", {"auto", "off"}, true, STRATA_AT(control.listen),
             "where status, checkpoints and stops are asked for (strata ctl, top); auto: a Unix socket that only this "
             "user reaches"),
      path("control.tls_cert", STRATA_AT(control.tls_cert), "certificate of control.listen and control.metrics (PEM)"),
      path("control.tls_key", STRATA_AT(control.tls_key), "its private key (PEM)"),
      path("control.tls_client_ca", STRATA_AT(control.tls_client_ca),
           "certificates that clients must come with one of (PEM): mutual TLS"),
      path("control.token_file", STRATA_AT(control.token_file),
           "a file with a secret that clients must know; readable by its owner alone"),
      text("control.interface", "a network interface, or an address of it", STRATA_AT(control.interface),
           "network that nodes watch each other over; any where not given"),
      listen("control.metrics", {"off"}, false, STRATA_AT(control.metrics),
             "where Prometheus finds /metrics, and anyone /healthz"),
      flag("control.metrics_public", STRATA_AT(control.metrics_public),
           "control.metrics beyond this host is meant for whoever reaches it"),
      number("control.timeout", 0, 86'400, "seconds from 0 to 86400", STRATA_AT(control.timeout),
             "a node not heard of for so long is lost, and the run ends; 0: never"),
      number("control.warn_after", 0, 86'400, "seconds from 0 to 86400", STRATA_AT(control.warn_after),
             "warn of a rank that stands still for so long, or ten times what its task takes; 0: never"),
      number("control.stuck_after", 0, 1e7, "seconds from 0 to 10000000", STRATA_AT(control.stuck_after),
             "write the state of all ranks to a file and end the run when a rank has stood still for so long; 0: "
             "never"),
      path("report.dir", STRATA_AT(report.dir),
           "a folder, made if there is none, for all reports below and the recipe, under their usual names"),
      path("report.jsonl", STRATA_AT(report.jsonl), "one line per step"),
      path("report.csv", STRATA_AT(report.csv), "the same as a table"),
      path("report.tensorboard", STRATA_AT(report.tensorboard), "a folder for TensorBoard's event files"),
      integer("report.every", 1, kMany, STRATA_AT(report.every), "steps between lines shown; files have every step"),
      path("report.summary", STRATA_AT(report.summary), "one object at the end"),
      path("report.trace", STRATA_AT(report.trace), "timeline of one step or several, for Perfetto"),
      trace_steps(),
      path("report.machine", STRATA_AT(report.machine),
           "machine file of strata calibrate: what it predicts for a step stands beside what was measured"),
  };
}

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string default_text(const RecipeKey& key, const Recipe& defaults) {
  return key.name == "model.init" ? "by model.path" : key.text(defaults);
}

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

}  // namespace

std::span<const RecipeKey> recipe_keys() {
  static const std::vector<RecipeKey> keys = make_keys();
  return keys;
}

const RecipeKey& nearest_key(std::string_view name) {
  name = name.substr(0, 128);  // whatever a file holds, the comparison stays cheap
  const RecipeKey* nearest = nullptr;
  std::size_t fewest = 0;
  for (const RecipeKey& key : recipe_keys()) {
    // A key in the wrong section, or in none, is one mistake, not as many as the section has letters.
    const std::size_t distance = std::min(edits(name, key.name), edits(last_part(name), last_part(key.name)) + 1);
    if (nearest && distance >= fewest) continue;
    nearest = &key;
    fewest = distance;
  }
  return *nearest;
}

std::string keys_about(std::string_view part) {
  std::string out;
  const Recipe defaults;
  for (const RecipeKey& key : recipe_keys())
    if (key.name.find(part) != std::string::npos)
      out += fmt::format("{} = {}\n    {}\n    allowed: {}\n", key.name, default_text(key, defaults), key.meaning,
                         key.allowed);
  if (out.empty()) fail(Exit::usage, "no key's name contains {}: did you mean {}?", part, nearest_key(part).name);
  return out;
}

std::string recipe_reference() {
  const auto cell = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
    return text;
  };
  std::string out =
      "# Recipe\n\nEvery key of a recipe (TOML), as `strata keys` prints it. Relative paths start at the "
      "recipe's "
      "folder,\nthose of `--set` at the current one; `~/` is the home folder. `model.config.KEY` overrides one key "
      "of `config.json`.\n\n"
      "| key | default | allowed | meaning |\n|---|---|---|---|\n";
  const Recipe defaults;
  for (const RecipeKey& key : recipe_keys()) {
    const std::string text = default_text(key, defaults);
    out += fmt::format("| `{}` | {} | {} | {} |\n", key.name, text == "none" || text == "[]" ? "" : cell(text),
                       cell(key.allowed), cell(key.meaning));
  }
  return out;
}

}  // namespace strata::runtime
