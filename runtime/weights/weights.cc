#include "runtime/weights/weights.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "comm/agreement.h"
#include "device/numeric/philox.h"
#include "models/files/safetensors.h"
#include "runtime/weights/tensor_match.h"

namespace strata::runtime {
namespace {

class RandomWeights final : public WeightSource {
 public:
  // Tensors of adapters are numbered after all those of the model, whose numbers they leave as they are.
  RandomWeights(const models::Model& model, std::uint64_t seed) : model_(model), seed_(seed) {
    std::uint32_t next = 0;
    numbers_.resize(model.units.size());
    for (const bool of_adapter : {false, true})
      for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
        const auto parameters = model.units[unit]->parameters();
        numbers_[unit].resize(parameters.size());
        for (std::size_t p = 0; p < parameters.size(); ++p)
          if (parameters[p].of_adapter == of_adapter) numbers_[unit][p] = next++;
      }
  }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    const models::Init init = model_.units[unit]->parameters()[parameter].init;
    if (!init.drawn()) {
      std::fill(out.begin(), out.end(), init.constant);
      return;
    }
    // Sites of dropout count up from 0; weights are apart from them.
    const device::RandomStream stream{seed_, 0, 0x80000000u + numbers_[unit][parameter]};
    for (std::size_t i = begin; i < begin + out.size();) {
      const device::PhiloxBlock block = device::random_block(stream, i / 4);
      float drawn[4];
      for (std::size_t k = 0; k < 4; ++k)  // uniform, of 24 bits
        drawn[k] = init.bound * (static_cast<float>(block.word[k] >> 8) * 0x1p-23f - 1);
      for (std::size_t pair = 0; pair < 4 && init.bound == 0; pair += 2) {
        const float u = (static_cast<float>(block.word[pair] >> 8) + 0.5f) * 0x1p-24f;
        const float angle = static_cast<float>(block.word[pair + 1]) * (2 * std::numbers::pi_v<float> * 0x1p-32f);
        const float radius = init.deviation * std::sqrt(-2 * std::log(u));
        drawn[pair] = radius * std::cos(angle);
        drawn[pair + 1] = radius * std::sin(angle);
      }
      for (const std::size_t stop = std::min(begin + out.size(), (i / 4 + 1) * 4); i < stop; ++i)
        out[i - begin] = drawn[i % 4];
    }
  }

 private:
  const models::Model& model_;
  std::uint64_t seed_;
  std::vector<std::vector<std::uint32_t>> numbers_;  // of each unit's parameters
};

class StoredWeights final : public WeightSource {
 public:
  StoredWeights(const models::Model& model, const std::filesystem::path& directory, std::uint64_t seed, bool new_head)
      : file_(models::Safetensors::open(directory)), random_(model, seed) {
    const auto& stored = file_.tensors();
    std::vector<std::string> names;
    names.reserve(stored.size());
    for (const models::StoredTensor& tensor : stored) names.push_back(tensor.name);
    // Of AutoGPTQ, AWQ and bitsandbytes: packed integers and their scales in a weight's place.
    for (const std::string& name : names)
      for (const char* ending : {".qweight", ".qzeros", ".weight.absmax", ".weight_packed", ".weight_scale", ".scales"})
        if (name.ends_with(ending))
          fail(Exit::usage,
               "{} holds quantised weights ({}): give the model that they were made from, or one that was converted "
               "back to bfloat16 (dequantize)",
               directory.string(), name);
    TensorMatch match = match_tensors(model, names, new_head);
    for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
      const auto& parameters = model.units[unit]->parameters();
      auto& tensors = tensors_.emplace_back();
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const std::vector<std::uint64_t> shape(parameters[p].shape.begin(), parameters[p].shape.end());
        const auto& place = match.places[unit][p];
        const bool missing = std::ranges::find(match.missing, parameters[p].name) != match.missing.end();
        if (place || missing)
          tensors.push_back(&file_.require(place ? stored[*place].name : parameters[p].name, shape));
        else
          tensors.push_back(nullptr);
      }
    }
    drawn_ = std::move(match.drawn);
    for (const std::size_t i : match.left_out)
      if (auto layer = layer_of(names[i], stored[i].shape.size())) left_out_.push_back(*std::move(layer));
    for (const std::size_t i : match.unknown) check_unknown(stored[i], model);
    for (const auto& tensors : tensors_) read_.emplace_back(tensors.size());
  }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    if (!tensors_[unit][parameter]) return random_.read(unit, parameter, begin, out);
    const models::StoredTensor& tensor = *tensors_[unit][parameter];
    models::read_elements(tensor, begin, out);
    const auto bytes = part_of(tensor, begin, out.size());
    // A sum: threads come in any order.
    read_[unit][parameter] += XXH3_64bits_withSeed(bytes.data(), bytes.size(), begin);
    MappedFile::release(bytes);  // what is mapped counts as the rank's memory
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!std::isfinite(out[i]))
        fail(Exit::corrupt, "{}: tensor {} holds {} at element {}, but weights have to be finite", tensor.file.string(),
             tensor.name, out[i], begin + i);
  }

  // Page by page a cold file is read slowly.
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    if (const models::StoredTensor* tensor = tensors_[unit][parameter])
      MappedFile::will_need(part_of(*tensor, begin, count));
  }

  std::vector<comm::Seen> seen() const override {
    std::size_t all = 0;
    for (const auto& tensors : tensors_)
      for (const models::StoredTensor* tensor : tensors)
        if (tensor) all += tensor->bytes.size();
    const comm::Coverage coverage = comm::of_tensors(all);
    for (const auto& tensors : tensors_)
      for (const models::StoredTensor* tensor : tensors)
        if (tensor) comm::ask_for(tensor->bytes, coverage);
    return of_tensors([&](const models::StoredTensor& tensor, std::size_t, std::size_t) {
      std::string print = fmt::format("{} [{}], {}", tensor.dtype, fmt::join(tensor.shape, ", "),
                                      comm::print_of(tensor.bytes, coverage));
      MappedFile::release(tensor.bytes);
      return print;
    });
  }
  std::vector<std::string> drawn() const override { return drawn_; }
  std::vector<std::string> left_out() const override { return left_out_; }
  std::size_t rounded() const override {
    std::size_t count = 0;
    for (const auto& tensors : tensors_)
      count += static_cast<std::size_t>(
          std::ranges::count_if(tensors, [](const auto* tensor) { return tensor && tensor->is_double(); }));
    return count;
  }
  std::vector<comm::Seen> seen_as_read() const override {
    return of_tensors([&](const models::StoredTensor&, std::size_t unit, std::size_t parameter) {
      return fmt::format("hash {:016x}", read_[unit][parameter].load());
    });
  }

 private:
  template <typename Print>
  std::vector<comm::Seen> of_tensors(Print&& print) const {
    std::vector<comm::Seen> all;
    for (std::size_t unit = 0; unit < tensors_.size(); ++unit)
      for (std::size_t p = 0; p < tensors_[unit].size(); ++p) {
        if (!tensors_[unit][p]) continue;
        const models::StoredTensor& tensor = *tensors_[unit][p];
        all.push_back({fmt::format("tensor {} of {}", tensor.name, tensor.file.string()), print(tensor, unit, p)});
      }
    return all;
  }
  static std::span<const std::byte> part_of(const models::StoredTensor& tensor, std::size_t begin, std::size_t count) {
    const std::size_t element = tensor.element_bytes();
    return tensor.bytes.subspan(begin * element, count * element);
  }
  // Some writers store a shared tensor once more. Throws Error for any other.
  void check_unknown(const models::StoredTensor& tensor, const models::Model& model) const {
    for (const auto& unit : model.units) {
      const auto& shared = unit->shared();
      if (!shared || tensor.name != shared->name) continue;
      const models::StoredTensor& holder = *tensors_[shared->unit][shared->parameter];  // a table is never drawn
      if (models::same_values(tensor, holder)) return;
      fail(Exit::usage,
           "{}: tensor {} is another than {}, and model.config.tie_word_embeddings ties the two: without it, or with "
           "false, both are read",
           tensor.file.string(), tensor.name, holder.name);
    }
    fail(Exit::corrupt, "{}: tensor {} is not one that this {} model has; check config.json", tensor.file.string(),
         tensor.name, model.family);
  }

  models::Safetensors file_;
  RandomWeights random_;
  std::vector<std::string> drawn_, left_out_;
  std::vector<std::vector<const models::StoredTensor*>> tensors_;      // by unit and parameter; null: drawn
  mutable std::vector<std::vector<std::atomic<std::uint64_t>>> read_;  // hashes of what was read of each, added up
};

constexpr std::size_t kChunk = 1u << 18;  // elements read at once: a block of a checkpoint
static_assert(kChunk % kShardAlignment == 0);

}  // namespace

std::unique_ptr<WeightSource> random_weights(const models::Model& model, std::uint64_t seed) {
  return std::make_unique<RandomWeights>(model, seed);
}

std::unique_ptr<WeightSource> stored_weights(const models::Model& model, const std::filesystem::path& directory,
                                             std::uint64_t seed, bool new_head) {
  return std::make_unique<StoredWeights>(model, directory, seed, new_head);
}

void store_weights(Executor& executor, const StepPlan& plan, std::size_t unit, bool frozen, std::size_t begin,
                   std::span<const float> values) {
  // f(first, count): those of the values that this rank holds, and `at`, where they lie in what it holds.
  const auto for_held = [&](StateKind kind, auto&& f) {
    const models::ElementRange held = executor.storage().held(unit, kind);
    const std::size_t from = std::max(begin, held.begin), to = std::min(begin + values.size(), held.end);
    if (from < to) f(values.subspan(from - begin, to - from), from - held.begin);
  };
  const StateKind parameters = frozen ? StateKind::frozen : StateKind::parameters;
  for_held(parameters, [&](std::span<const float> mine, std::size_t at) {
    device::visit(plan.dtype, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> rounded(mine.size());
      for (std::size_t i = 0; i < mine.size(); ++i) rounded[i] = device::from_float<T>(mine[i]);
      executor.storage().write_state(unit, parameters, at * sizeof(T), std::as_bytes(std::span(rounded)));
    });
  });
  if (frozen || plan.dtype == device::DType::fp32 || !executor.storage().has_state(StateKind::master)) return;
  for_held(StateKind::master, [&](std::span<const float> mine, std::size_t at) {
    executor.storage().write_state(unit, StateKind::master, device::fp32_bytes(at), std::as_bytes(mine));
  });
}

BaseHash::BaseHash(const models::Model& model) {
  std::uint32_t next = 0;
  for (const auto& unit : model.units) {
    auto& numbers = numbers_.emplace_back();
    for (const models::Parameter& p : unit->parameters()) numbers.push_back(p.of_adapter ? 0 : next++);
  }
}

void BaseHash::add(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<const float> values) {
  constexpr std::size_t kBlock = models::kParameterAlignment;
  STRATA_CHECK_EQ(begin % kBlock, 0u);
  std::uint64_t low = 0, high = 0;
  for (std::size_t at = 0; at < values.size(); at += kBlock) {
    const auto some = values.subspan(at, std::min(kBlock, values.size() - at));
    const std::uint64_t place = std::uint64_t{numbers_[unit][parameter]} << 40 | (begin + at) / kBlock;
    const XXH128_hash_t h = XXH3_128bits_withSeed(some.data(), some.size_bytes(), place);
    low += h.low64;
    high += h.high64;
  }
  low_ += low;
  high_ += high;
}

std::string BaseHash::text() const {
  return fmt::format("{:016x}{:016x}", high_.load(), low_.load());
}

std::string BaseHash::whole(comm::World& world) const {
  std::uint64_t low = 0, high = 0;
  for (const std::string& of_rank : world.exchange(fmt::format("{} {}", high_.load(), low_.load()))) {
    high += std::stoull(of_rank);
    low += std::stoull(of_rank.substr(of_rank.find(' ')));
  }
  return fmt::format("{:016x}{:016x}", high, low);
}

void require_base(const WeightSource& source, const std::string& hash) {
  const WeightSource::Base base = source.base();
  if (base.hash.empty() || base.hash == hash) return;
  fail(Exit::usage,
       "{} is not the model that the adapter was trained beside: its tensors have the hash {}, and those had {}; give "
       "that model, as it was",
       base.path.empty() ? "the model" : base.path, hash, base.hash);
}

void load_weights(Executor& executor, const StepPlan& plan, const WeightSource& source, int threads,
                  const Advance& advance, const LoadOptions& options) {
  struct Chunk {
    std::size_t unit;
    bool frozen;             // of which of its pools
    std::size_t begin, end;  // elements
  };
  std::vector<Chunk> chunks;
  for (std::size_t unit = 0; unit < plan.layout.units.size(); ++unit)
    for (const bool frozen : {false, true}) {
      if (!frozen && options.frozen_alone) continue;
      const auto held = executor.storage().held(unit, frozen ? StateKind::frozen : StateKind::parameters);
      for (std::size_t begin = held.begin; begin < held.end; begin += kChunk)
        chunks.push_back({unit, frozen, begin, std::min(held.end, begin + kChunk)});
    }
  // f(run, from, to): the stretches of parameters in chunk i.
  const auto for_runs = [&](std::size_t i, auto&& f) {
    const Chunk& c = chunks[i];
    for (const Run& run : plan.layout.units[c.unit].pool(c.frozen).runs) {
      const std::size_t from = std::max(run.begin, c.begin), to = std::min(run.end, c.end);
      if (from < to) f(run, from, to);
    }
  };
  const auto prefetch = [&](std::size_t i) {
    for_runs(i, [&](const Run& run, std::size_t from, std::size_t to) {
      source.prefetch(chunks[i].unit, run.parameter, from - run.begin, to - from);
    });
  };
  std::uint64_t bytes = 0;
  for (const Chunk& c : chunks) bytes += device::fp32_bytes(c.end - c.begin);
  Advancing advancing(advance, bytes);
  parallel_reads(chunks.size(), threads, prefetch, [&](std::size_t i) {
    const Chunk& c = chunks[i];
    std::vector<float> values(c.end - c.begin);  // zeros between the parameters
    for_runs(i, [&](const Run& run, std::size_t from, std::size_t to) {
      source.read(c.unit, run.parameter, from - run.begin, {&values[from - c.begin], to - from});
      if (!c.frozen || !options.base) return;
      const models::ElementRange own = plan.layout.units[c.unit].frozen.shards.piece_of({from, to}, options.rank);
      if (own.begin < own.end)
        options.base->add(c.unit, run.parameter, own.begin - run.begin, {&values[own.begin - c.begin], own.size()});
    });
    store_weights(executor, plan, c.unit, c.frozen, c.begin, values);
    advancing.add(device::fp32_bytes(values.size()));
  });
}

std::string load_same_weights(Executor& executor, const models::Model& model, const StepPlan& plan,
                              const WeightSource& source, int threads, comm::World& world, const Advance& advance,
                              bool frozen_alone) {
  const bool alone = world.size() == 1;
  if (!alone) comm::require_same(source.seen(), world);
  BaseHash base(model);
  comm::agree(world, [&] {
    load_weights(executor, plan, source, threads, advance,
                 {frozen_alone, plan.layout.adapted ? &base : nullptr, plan.mesh().at(world.rank())});
  });
  // If each rank reads a part of its own, no two have read the same.
  if (!alone && !plan.sharded_parameters() && !frozen_alone) comm::require_same(source.seen_as_read(), world);
  if (!plan.layout.adapted) return {};
  std::string hash = base.whole(world);
  comm::agree(world, [&] { require_base(source, hash); });
  return hash;
}

}  // namespace strata::runtime
