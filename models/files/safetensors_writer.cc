#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "models/files/safetensors.h"

namespace strata::models {
namespace {

static_assert(std::endian::native == std::endian::little);

std::string_view stored_name(const TensorSpec& tensor) {
  if (tensor.of_bytes) return "U8";
  const device::DType t = tensor.dtype;
  return t == device::DType::fp32 ? "F32" : t == device::DType::bf16 ? "BF16" : "F16";
}

}  // namespace

std::uint64_t TensorSpec::bytes() const {
  std::uint64_t n = of_bytes ? 1 : size_of(dtype);
  for (const std::int64_t d : shape) n *= static_cast<std::uint64_t>(d);
  return n;
}

ShardPlan plan_shards(std::span<const TensorSpec> tensors, std::uint64_t max_bytes) {
  ShardPlan plan;
  std::uint64_t in_file = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = tensors[i].bytes();
    if (plan.files.empty() || (in_file > 0 && in_file + bytes > max_bytes)) {
      plan.files.emplace_back();
      in_file = 0;
    }
    plan.files.back().tensors.push_back(i);
    in_file += bytes;
    plan.bytes += bytes;
  }
  for (std::size_t f = 0; f < plan.files.size(); ++f)
    plan.files[f].name = plan.files.size() == 1
                             ? "model.safetensors"
                             : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, plan.files.size());
  return plan;
}

std::string safetensors_header(std::span<const TensorSpec> tensors) {
  JsonObject header;
  header.add("__metadata__", JsonObject().add("format", "pt"));  // transformers refuses a file without it
  std::uint64_t offset = 0;
  for (const TensorSpec& t : tensors) {
    header.add(t.name, JsonObject()
                           .add("dtype", stored_name(t))
                           .add("shape", JsonArray().add_all(t.shape))
                           .add("data_offsets", JsonArray().add(offset).add(offset + t.bytes())));
    offset += t.bytes();
  }
  std::string json = header.text();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = json.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + json;
}

std::string safetensors_index(const ShardPlan& plan, std::span<const TensorSpec> tensors) {
  std::map<std::string, std::string> where;
  for (const ShardPlan::File& file : plan.files)
    for (const std::size_t i : file.tensors) where[tensors[i].name] = file.name;
  constexpr JsonLayout kLayout = JsonLayout::indented;  // as transformers writes it
  JsonObject map(kLayout);
  for (const auto& [tensor, file] : where) map.add(tensor, file);
  return JsonObject(kLayout)
             .add("metadata", JsonObject(kLayout).add("total_size", plan.bytes))
             .add("weight_map", map)
             .text() +
         "\n";
}

}  // namespace strata::models
