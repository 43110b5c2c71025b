#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "device/numeric/nf4.h"
#include "models/files/quantisation.h"
#include "runtime/checkpoint/export/exporter.h"

namespace strata::runtime {
namespace {

using device::kNf4Block, device::kNf4Scales, device::kScaleBlock, device::StorageFormat;
using models::TensorSpec;

constexpr JsonLayout kPythonLayout = JsonLayout::spaced;  // as bitsandbytes and transformers write it

std::string_view torch_name(device::DType dtype) {
  return dtype == device::DType::fp32 ? "float32" : "bfloat16";
}

std::int64_t count(std::size_t n) {
  return static_cast<std::int64_t>(n);
}

// The part of each block that belongs to one tensor: `bytes_per_block` bytes from `at` on.
struct Part {
  std::size_t at, bytes_per_block;
};

}  // namespace

QuantisedExport::QuantisedExport(const models::Model& model, const WeightSource& weights, device::DType dtype,
                                 const models::Config* read)
    : model_(model), weights_(weights), dtype_(dtype), read_(read) {
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
    auto& formats = formats_.emplace_back(model.units[unit]->parameters().size());
    for (std::size_t p = 0; p < formats.size(); ++p)
      for (const StorageFormat format : {StorageFormat::nf4, StorageFormat::nf4_plain})
        if (weights.quantised(unit, p, format)) formats[p] = format;
  }
}

bool QuantisedExport::any() const {
  return std::ranges::any_of(formats_, [](const auto& formats) {
    return std::ranges::any_of(formats, [](const auto& format) { return format.has_value(); });
  });
}

std::vector<TensorSpec> QuantisedExport::tensors(std::size_t unit, std::size_t parameter) const {
  using device::DType;
  const models::Parameter& p = parameter_of(unit, parameter);
  const std::size_t scales = (p.size() + kScaleBlock - 1) / kScaleBlock;
  const bool nested = formats_[unit][parameter] == StorageFormat::nf4;
  std::vector<TensorSpec> out = {{p.name, DType::fp32, {count((p.size() + 1) / 2), 1}, true},
                                 {p.name + ".absmax", DType::fp32, {count(scales)}, nested}};
  if (nested) {
    out.push_back({p.name + ".nested_absmax", DType::fp32, {count((scales + kNf4Scales - 1) / kNf4Scales)}});
    out.push_back({p.name + ".nested_quant_map", DType::fp32, {256}});
  }
  out.push_back({p.name + ".quant_map", DType::fp32, {16}});
  out.push_back(
      {p.name + ".quant_state.bitsandbytes__nf4", DType::fp32, {count(state_of(unit, parameter).size())}, true});
  return out;
}

void QuantisedExport::write(std::size_t unit, std::size_t parameter, std::size_t tensor, const Sink& sink) const {
  const TensorSpec spec = tensors(unit, parameter)[tensor];
  const auto ends = [&](const char* suffix) { return spec.name == parameter_of(unit, parameter).name + suffix; };
  if (ends(".quant_map")) return sink(std::as_bytes(std::span(device::kNf4Values)));
  if (ends(".quant_state.bitsandbytes__nf4")) {
    const std::string state = state_of(unit, parameter);
    return sink(std::as_bytes(std::span(state)));
  }
  if (ends(".nested_quant_map")) {
    std::vector<float> map(256);
    for (unsigned code = 0; code < map.size(); ++code) map[code] = device::scale_value(static_cast<std::uint8_t>(code));
    return sink(std::as_bytes(std::span(map)));
  }
  const StorageFormat format = *formats_[unit][parameter];
  const bool nested = format == StorageFormat::nf4;
  const std::size_t codes = nested ? device::kNf4Codes : device::kNf4PlainCodes;
  const Part part = ends("")                 ? Part{codes, device::kNf4CodeBytes}
                    : ends(".nested_absmax") ? Part{0, sizeof(float)}
                    : nested                 ? Part{device::kNf4ScaleBytes, kNf4Scales}
                                             : Part{0, kNf4Scales * sizeof(float)};
  std::vector<std::byte> block(stored_bytes(format, kNf4Block));
  std::size_t left = spec.bytes();
  for (std::size_t begin = 0; left > 0; begin += kNf4Block) {
    weights_.read_block(unit, parameter, begin, block);
    const std::size_t n = std::min(left, part.bytes_per_block);
    sink(std::span(block).subspan(part.at, n));
    left -= n;
  }
}

std::string QuantisedExport::unpacked_dtype(std::size_t unit, std::size_t parameter) const {
  if (!read_) return std::string(torch_name(dtype_));
  if (std::string stored = weights_.unpacked_dtype(unit, parameter); !stored.empty()) return stored;
  // A checkpoint has the codes of its model's files and their config.json, but not the states.
  const std::string of_model = read_->text_or(read_->has("torch_dtype") ? "torch_dtype" : "dtype", "");
  if (model_.quantised_in_files && models::is_unpacked_dtype(of_model)) return of_model;
  return std::string(torch_name(dtype_));
}

std::string QuantisedExport::state_of(std::size_t unit, std::size_t parameter) const {
  const models::Parameter& p = parameter_of(unit, parameter);
  JsonObject state(kPythonLayout);
  state.add("quant_type", "nf4")
      .add("blocksize", kScaleBlock)
      .add("dtype", unpacked_dtype(unit, parameter))
      .add("shape", JsonArray(kPythonLayout).add_all(p.shape));
  if (formats_[unit][parameter] == StorageFormat::nf4) {
    std::vector<std::byte> block(stored_bytes(StorageFormat::nf4, kNf4Block));
    weights_.read_block(unit, parameter, 0, block);
    float offset;
    std::memcpy(&offset, block.data() + sizeof(float), sizeof offset);
    state.add("nested_blocksize", kNf4Scales)
        .add("nested_dtype", "float32")
        .add("nested_offset", JsonText{fmt::format("{:.17g}", static_cast<double>(offset))});
  }
  return state.text();
}

void QuantisedExport::describe(models::Config& config) const {
  // The linear layers that transformers would quantise and that are not quantised here. All are listed if one of them
  // is outside the head, or if the head is quantised: without a list, transformers skips only the head.
  std::vector<std::string> skipped;
  bool twice = true, listed = false;
  const auto module_of = [](const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); };
  for (std::size_t unit = 0; unit < model_.units.size(); ++unit) {
    const auto parameters = model_.units[unit]->parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (formats_[unit][p]) {
        twice = twice && *formats_[unit][p] == StorageFormat::nf4;
        listed = listed || model_.units[unit]->as_loss();
      } else if (parameters[p].shape.size() == 2) {
        skipped.push_back(module_of(parameters[p].name));
        listed = listed || (model_.units[unit]->ports().input && !model_.units[unit]->as_loss());
      }
    }
    if (const auto& shared = model_.units[unit]->shared()) skipped.push_back(module_of(shared->name));
  }
  const JsonArray names = JsonArray(kPythonLayout).add_all(skipped);
  const JsonObject described = JsonObject(kPythonLayout)
                                   .add("quant_method", "bitsandbytes")
                                   .add("_load_in_4bit", true)
                                   .add("_load_in_8bit", false)
                                   .add("load_in_4bit", true)
                                   .add("load_in_8bit", false)
                                   .add("bnb_4bit_compute_dtype", torch_name(dtype_))
                                   .add("bnb_4bit_quant_storage", "uint8")
                                   .add("bnb_4bit_quant_type", "nf4")
                                   .add("bnb_4bit_use_double_quant", twice)
                                   .add("llm_int8_enable_fp32_cpu_offload", false)
                                   .add("llm_int8_has_fp16_weight", false)
                                   .add("llm_int8_skip_modules", JsonText{listed ? names.text() : "null"})
                                   .add("llm_int8_threshold", JsonText{"6.0"});
  config.override_key("quantization_config", described.text());
}

}  // namespace strata::runtime
