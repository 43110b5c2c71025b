#include "runtime/weights/weight_source.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numbers>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quote.h"
#include "comm/exchange_values.h"
#include "device/numeric/philox.h"
#include "models/files/quantisation.h"
#include "models/files/safetensors.h"
#include "runtime/weights/floats.h"
#include "runtime/weights/tensor_match.h"

namespace strata::runtime {
namespace {

class RandomWeights final : public WeightSource {
 public:
  // An adapter's tensors are numbered after the model's, so that those keep their numbers.
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
    if (!init.is_random()) {
      std::fill(out.begin(), out.end(), init.constant);
      return;
    }
    // Dropout sites count up from 0; weights have separate streams.
    const device::RandomStream stream{seed_, 0, 0x80000000u + numbers_[unit][parameter]};
    for (std::size_t i = begin; i < begin + out.size();) {
      const device::PhiloxBlock block = device::random_block(stream, i / 4);
      float values[4];
      for (std::size_t k = 0; k < 4; ++k)  // uniform, from 24 bits
        values[k] = init.bound * (static_cast<float>(block.word[k] >> 8) * 0x1p-23f - 1);
      for (std::size_t pair = 0; pair < 4 && init.bound == 0; pair += 2) {
        const float u = (static_cast<float>(block.word[pair] >> 8) + 0.5f) * 0x1p-24f;
        const float angle = static_cast<float>(block.word[pair + 1]) * (2 * std::numbers::pi_v<float> * 0x1p-32f);
        const float radius = init.deviation * std::sqrt(-2 * std::log(u));
        values[pair] = radius * std::cos(angle);
        values[pair + 1] = radius * std::sin(angle);
      }
      for (const std::size_t stop = std::min(begin + out.size(), (i / 4 + 1) * 4); i < stop; ++i)
        out[i - begin] = values[i % 4];
    }
  }

 private:
  const models::Model& model_;
  std::uint64_t seed_;
  std::vector<std::vector<std::uint32_t>> numbers_;  // by unit and parameter
};

// Throws if all tensors were saved from inside a wrapper; transformers does not find these either.
void refuse_wrapped(const std::filesystem::path& directory, std::span<const std::string> names,
                    const std::string& missing) {
  const auto first_with = [&](std::string_view part) {
    return std::ranges::find_if(names, [&](const std::string& name) { return name.find(part) != std::string::npos; });
  };
  for (const std::string_view part : {".base_layer.", ".lora_A."})
    if (const auto found = first_with(part); found != names.end())
      fail(Exit::usage,
           "{} holds a model wrapped by peft ({}): save the model that peft's merge_and_unload() returns, or give the "
           "model "
           "without the adapter, and the adapter's folder as adapter.path",
           directory.string(), *found);
  const std::string prefix = prefix_of_wrapper(names, missing);
  for (const std::string_view part : {"._orig_mod.", "._fsdp_wrapped_module.", "._checkpoint_wrapped_module."})
    if (const auto found = first_with(part); prefix.empty() && found != names.end())
      fail(
          Exit::usage,
          "{} holds parts of a model that were saved inside a wrapper ({}): take {} out of the tensors' names, or save "
          "the model without the wrapper",
          directory.string(), *found, part.substr(1));
  if (prefix.empty()) return;
  const bool parallel = prefix.find("module.") != std::string::npos,
             compiled = prefix.find("_orig_mod.") != std::string::npos;
  fail(Exit::usage,
       "{}: the name of every tensor begins with {}, as if the model was saved inside {}: save the inner model, or "
       "rename the tensors once: {}",
       directory.string(), prefix,
       parallel && compiled ? "DistributedDataParallel and torch.compile"
       : parallel           ? "DistributedDataParallel"
       : compiled           ? "torch.compile"
                            : "another one",
       python_command("from pathlib import Path; from safetensors.torch import load_file, save_file; "
                      "[save_file({k.removeprefix(argv[2]): t.clone() for k, t in load_file(f).items()}, f, "
                      "{'format': 'pt'}) for f in Path(argv[1]).glob('*.safetensors')]; "
                      "[i.write_text(i.read_text().replace(chr(34) + argv[2], chr(34))) for i in "
                      "Path(argv[1]).glob('*.index.json')]",
                      {directory.string(), prefix}));
}

class StoredWeights final : public WeightSource {
 public:
  StoredWeights(const models::Model& model, const std::filesystem::path& directory, std::uint64_t seed, bool new_head)
      : file_(models::Safetensors::open(directory)), random_(model, seed) {
    std::vector<std::string> names;
    std::vector<const models::StoredTensor*> stored;
    for (const models::StoredTensor& tensor : file_.tensors()) {
      if (models::belongs_to_nf4(file_, tensor.name)) continue;
      names.push_back(tensor.name);
      stored.push_back(&tensor);
    }
    // AutoGPTQ, AWQ and other formats of bitsandbytes store packed integers and scales in place of a weight.
    for (const std::string& name : names)
      for (const char* ending : {".qweight", ".qzeros", ".weight.absmax", ".weight_packed", ".weight_scale", ".scales"})
        if (name.ends_with(ending))
          fail(Exit::usage,
               "{} holds quantised weights ({}): give the original model, or one that was converted "
               "back to bfloat16 (dequantize)",
               directory.string(), name);
    TensorMatch match = match_tensors(model, names, new_head);
    if (!match.missing.empty()) refuse_wrapped(directory, names, match.missing.front());
    // The rest of the head is there, so the model was saved tied.
    const bool masked = !new_head && match.initialised.size() == 1 && match.initialised[0].ends_with("decoder.weight");
    if (masked || match.missing == std::vector<std::string>{"lm_head.weight"})
      fail(Exit::usage,
           "{} has no {}, which model.config.tie_word_embeddings = false (or config.json) requires: leave that out, or "
           "save the model untied first: {}",
           directory.string(), masked ? match.initialised[0] : match.missing[0], command_to_untie(directory, masked));
    for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
      const auto& parameters = model.units[unit]->parameters();
      auto& tensors = tensors_.emplace_back();
      auto& nf4 = nf4_.emplace_back(parameters.size());
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const std::vector<std::uint64_t> shape(parameters[p].shape.begin(), parameters[p].shape.end());
        const auto& place = match.places[unit][p];
        const bool missing = std::ranges::find(match.missing, parameters[p].name) != match.missing.end();
        if (place && models::is_nf4(file_, names[*place])) {
          nf4[p] = nf4_of(names[*place], shape);
          if (model.quantised_in_files && model.quantised_as == device::StorageFormat::nf4 &&
              nf4[p]->format() != model.quantised_as)
            fail(Exit::usage,
                 "{}: the scales of {} are not quantised, but quantization_config in config.json says that they are: "
                 "set bnb_4bit_use_double_quant to false there",
                 stored[*place]->file.string(), names[*place]);
          tensors.push_back(stored[*place]);
        } else if (place && model.quantised_in_files && parameters[p].pool() == models::PoolKind::quantised) {
          fail(Exit::usage,
               "{}: tensor {} is {}, but quantization_config in config.json says that it is in 4 bits, which "
               "transformers then expects: take quantization_config out of config.json (model.frozen_format = \"nf4\" "
               "quantises weights as they are read), or save the model again as transformers loads it in 4 bits",
               stored[*place]->file.string(), names[*place], stored[*place]->dtype);
        } else if (place || missing) {
          tensors.push_back(&file_.require(place ? names[*place] : parameters[p].name, shape));
        } else {
          tensors.push_back(nullptr);
        }
      }
    }
    initialised_ = std::move(match.initialised);
    for (const std::size_t i : match.left_out)
      if (auto layer = layer_of(names[i], stored[i]->shape.size())) left_out_.push_back(*std::move(layer));
    for (const std::size_t i : match.unknown) check_unknown(*stored[i], model);
    for (const auto& tensors : tensors_) read_.emplace_back(tensors.size());
  }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    if (!tensors_[unit][parameter]) return random_.read(unit, parameter, begin, out);
    if (const auto& nf4 = nf4_[unit][parameter]) return read_blocks(*this, nf4->format(), unit, parameter, begin, out);
    const models::StoredTensor& tensor = *tensors_[unit][parameter];
    models::read_elements(tensor, begin, out);
    const auto bytes = part_of(tensor, begin, out.size());
    // A sum, because threads add in any order.
    read_[unit][parameter] += XXH3_64bits_withSeed(bytes.data(), bytes.size(), begin);
    MappedFile::release(bytes);  // mapped pages count as the rank's memory
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!std::isfinite(out[i]))
        fail(Exit::corrupt, "{}: tensor {} holds {} at element {}, but weights must be finite", tensor.file.string(),
             tensor.name, out[i], begin + i);
  }

  bool quantised(std::size_t unit, std::size_t parameter, device::StorageFormat format) const override {
    const auto& nf4 = nf4_[unit][parameter];
    return nf4 && nf4->format() == format;
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    nf4_[unit][parameter]->read_block(begin, block);
    read_[unit][parameter] += XXH3_64bits_withSeed(block.data(), block.size(), begin);
    std::array<float, device::kNf4Scales> scales;
    device::read_nf4_scales(nf4_[unit][parameter]->format(), block.data(), scales.data());
    if (!std::ranges::all_of(scales, [](float x) { return std::isfinite(x); }))
      fail(Exit::corrupt, "{}: tensor {} has a scale that is not finite from element {} on",
           tensors_[unit][parameter]->file.string(), tensors_[unit][parameter]->name, begin);
  }

  std::string unpacked_dtype(std::size_t unit, std::size_t parameter) const override {
    const auto& nf4 = nf4_[unit][parameter];
    return nf4 ? nf4->dtype : "";
  }

  // Without read-ahead a cold file is read page by page, which is slow.
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    if (nf4_[unit][parameter])
      MappedFile::will_need(nf4_[unit][parameter]->codes_of(begin, count));
    else if (const models::StoredTensor* tensor = tensors_[unit][parameter])
      MappedFile::will_need(part_of(*tensor, begin, count));
  }

  std::vector<comm::FileFingerprint> fingerprints() const override {
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
                                      comm::fingerprint_of(tensor.bytes, coverage));
      MappedFile::release(tensor.bytes);
      return print;
    });
  }
  std::vector<std::string> initialised() const override { return initialised_; }
  std::vector<std::string> left_out() const override { return left_out_; }
  std::size_t rounded() const override {
    std::size_t count = 0;
    for (const auto& tensors : tensors_)
      count += static_cast<std::size_t>(
          std::ranges::count_if(tensors, [](const auto* tensor) { return tensor && tensor->is_double(); }));
    return count;
  }
  std::vector<comm::FileFingerprint> fingerprints_as_read() const override {
    return of_tensors([&](const models::StoredTensor&, std::size_t unit, std::size_t parameter) {
      return fmt::format("hash {:016x}", read_[unit][parameter].load());
    });
  }

 private:
  models::Nf4Tensor nf4_of(const std::string& name, const std::vector<std::uint64_t>& shape) const {
    models::Nf4Tensor tensor = models::nf4_tensor(file_, name);
    const models::StoredTensor& codes = *tensor.codes;
    if (tensor.shape != shape)
      fail(Exit::corrupt, "{}: expected tensor {} of shape [{}], found shape [{}]", codes.file.string(), name,
           fmt::join(shape, ", "), fmt::join(tensor.shape, ", "));
    return tensor;
  }
  template <typename Print>
  std::vector<comm::FileFingerprint> of_tensors(Print&& print) const {
    std::vector<comm::FileFingerprint> all;
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
  // Some writers store a shared tensor twice. Throws Error for any other unknown tensor.
  void check_unknown(const models::StoredTensor& tensor, const models::Model& model) const {
    for (const auto& unit : model.units) {
      const auto& shared = unit->shared();
      if (!shared || tensor.name != shared->name) continue;
      const models::StoredTensor& holder = *tensors_[shared->unit][shared->parameter];  // a table is always stored
      if (models::same_values(tensor, holder)) return;
      fail(Exit::usage,
           "{}: tensor {} differs from {}, and model.config.tie_word_embeddings ties the two: set it to false, or "
           "leave it out, to read both",
           tensor.file.string(), tensor.name, holder.name);
    }
    fail(Exit::corrupt, "{}: tensor {} does not belong to this {} model; check config.json", tensor.file.string(),
         tensor.name, model.family);
  }

  models::Safetensors file_;
  RandomWeights random_;
  std::vector<std::string> initialised_, left_out_;
  std::vector<std::vector<const models::StoredTensor*>> tensors_;      // by unit and parameter; null: not stored
  std::vector<std::vector<std::optional<models::Nf4Tensor>>> nf4_;     // quantised tensors
  mutable std::vector<std::vector<std::atomic<std::uint64_t>>> read_;  // sums of hashes of what was read of each tensor
};

}  // namespace

std::unique_ptr<WeightSource> random_weights(const models::Model& model, std::uint64_t seed) {
  return std::make_unique<RandomWeights>(model, seed);
}

std::unique_ptr<WeightSource> stored_weights(const models::Model& model, const std::filesystem::path& directory,
                                             std::uint64_t seed, bool new_head) {
  return std::make_unique<StoredWeights>(model, directory, seed, new_head);
}

void read_blocks(const WeightSource& source, device::StorageFormat format, std::size_t unit, std::size_t parameter,
                 std::size_t begin, std::span<float> out) {
  constexpr std::size_t kBlock = device::kNf4Block;
  std::vector<std::byte> block(stored_bytes(format, kBlock));
  std::vector<float> values(kBlock);
  for (std::size_t at = begin / kBlock * kBlock; at < begin + out.size(); at += kBlock) {
    source.read_block(unit, parameter, at, block);
    read_nf4_block(format, block, values);
    const std::size_t from = std::max(at, begin), to = std::min(at + kBlock, begin + out.size());
    std::ranges::copy(std::span(values).subspan(from - at, to - from), out.subspan(from - begin).begin());
  }
}

void read_piece(const WeightSource& source, std::size_t unit, std::size_t parameter, const models::Piece& piece,
                std::size_t begin, std::span<float> out) {
  if (piece.shards == 1) return source.read(unit, parameter, begin, out);
  constexpr std::size_t kLong = 4096;  // shorter ranges are read with what lies between them
  if (piece.length >= kLong)
    return piece.for_contiguous(begin, begin + out.size(), [&](std::size_t at, std::size_t full, std::size_t count) {
      source.read(unit, parameter, full, out.subspan(at - begin, count));
    });
  const std::size_t first = piece.full_index(begin), last = piece.full_index(begin + out.size() - 1);
  std::vector<float> all(last - first + 1);
  source.read(unit, parameter, first, all);
  piece.for_contiguous(begin, begin + out.size(), [&](std::size_t at, std::size_t full, std::size_t count) {
    std::copy_n(&all[full - first], count, &out[at - begin]);
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

std::string BaseHash::of_rank() const {
  return fmt::format("{:016x}{:016x}", high_.load(), low_.load());
}

std::string BaseHash::over_ranks(comm::World& world) const {
  std::uint64_t low = 0, high = 0;
  for (const auto& [of_high, of_low] : comm::exchange_value(world, std::array{high_.load(), low_.load()})) {
    high += of_high;
    low += of_low;
  }
  return fmt::format("{:016x}{:016x}", high, low);
}

void require_base(const WeightSource& source, const std::string& hash) {
  const WeightSource::Base base = source.base();
  if (base.hash.empty() || base.hash == hash) return;
  fail(Exit::usage,
       "{} is not the adapter's base model: its tensors have the hash {}, but the base's have {}; give the model with "
       "which the adapter was trained, unchanged",
       base.path.empty() ? "the model" : base.path, hash, base.hash);
}

}  // namespace strata::runtime
