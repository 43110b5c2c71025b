#include "launcher/inspect/inspect.h"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "base/words.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/progress.h"
#include "models/files/config.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/choice.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/data/files/documents.h"
#include "runtime/data/files/tokens.h"
#include "runtime/weights/adapter/peft_folder.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kPiece = std::size_t{1} << 16;
constexpr std::size_t kShownTokens = 64;

Statistics statistics(const models::StoredTensor& tensor) {
  Statistics out;
  std::vector<float> piece(kPiece);
  for (std::uint64_t begin = 0, elements = tensor.elements(); begin < elements; begin += kPiece) {
    const auto values = std::span(piece).first(std::min<std::uint64_t>(kPiece, elements - begin));
    models::read_elements(tensor, begin, values);
    out.add(values);
  }
  return out;
}

// The number of tensors and elements of each dtype: "3 of F32 (5 elements)".
std::string dtypes_text(const models::Safetensors& file) {
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> of;
  for (const auto& tensor : file.tensors()) {
    auto& [tensors, elements] = of[tensor.dtype];
    ++tensors;
    elements += tensor.elements();
  }
  std::string out;
  for (const auto& [dtype, counts] : of)
    out +=
        fmt::format("{}{} of {} ({})", out.empty() ? "" : ", ", counts.first, dtype, counted(counts.second, "element"));
  return out;
}

void inspect_tensors(const fs::path& path, Tensors wanted, std::ostream& out) {
  const auto file = models::Safetensors::open(path);
  std::size_t width = 6;
  for (const auto& tensor : file.tensors()) width = std::max(width, tensor.name.size());
  std::uint64_t elements = 0, bytes = 0, non_finite = 0, looked_at = 0;
  for (const auto& tensor : file.tensors()) {
    elements += tensor.elements();
    bytes += tensor.bytes.size();
  }
  fmt::print(out, "{}, {}, {} of data, {} of files\n", counted(file.tensors().size(), "tensor"),
             counted(elements, "element"), counted(bytes, "byte"), counted(file.file_bytes(), "byte"));
  fmt::print(out, "dtypes: {}\n", printable(dtypes_text(file)));
  if (runtime::type_at(path / "config.json") == fs::file_type::regular) {
    const models::Config config = models::Config::read(path);
    out << classes_line(config);
    print_quantisation(file, config, out);
  }
  for (const auto& [key, value] : file.metadata())
    fmt::print(out, "metadata {} = {}\n", printable(key), printable(value));
  Activity activity("inspecting tensors", Activity::Unit::bytes);
  bool headed = false;
  for (const auto& tensor : file.tensors()) {
    activity.show(looked_at, bytes);
    looked_at += tensor.bytes.size();
    const Statistics s = tensor.readable() ? statistics(tensor) : Statistics();
    non_finite += s.non_finite();
    if (wanted == Tensors::wrong && s.non_finite() == 0) continue;
    activity.clear();
    if (!std::exchange(headed, true))
      fmt::print(out, "{:<{}}  {:<5} {:<20} {:>12} {:>12} {:>11}\n", "tensor", width, "dtype", "shape", "mean", "std",
                 "non-finite");
    fmt::print(out, "{:<{}}  {:<5} {:<20}", printable(tensor.name), width, tensor.dtype,
               fmt::format("[{}]", fmt::join(tensor.shape, ", ")));
    if (tensor.readable())
      fmt::print(out, " {:>12.5g} {:>12.5g} {:>11}\n", s.mean(), s.deviation(), s.non_finite());
    else  // integers, and formats that Strata does not read
      fmt::print(out, " {:>12} {:>12} {:>11}\n", "-", "-", "-");
  }
  fmt::print(out, "{}{}\n", counted(non_finite, "non-finite element"),
             wanted == Tensors::wrong ? " (--tensors shows each tensor)" : "");
}

void inspect_tokens(const fs::path& path, std::ostream& out) {
  const runtime::TokenFile file(path, std::nullopt);
  file.check_all();
  std::vector<std::uint32_t> piece(kPiece), first;
  std::uint32_t least = UINT32_MAX, most = 0;
  for (std::uint64_t begin = 0; begin < file.count(); begin += kPiece) {
    const auto tokens = std::span(piece).first(std::min<std::uint64_t>(kPiece, file.count() - begin));
    file.read(begin, tokens);
    const auto [low, high] = std::minmax_element(tokens.begin(), tokens.end());
    least = std::min(least, *low);
    most = std::max(most, *high);
    if (begin == 0) first.assign(tokens.begin(), tokens.begin() + std::min(kShownTokens, tokens.size()));
  }
  const auto& sidecar = file.sidecar();
  fmt::print(out, "token file: {} of {} bytes, {}\n", counted(file.count(), "token"), file.width(),
             file.has_header() ? "header of llm.c" : "no header");
  if (sidecar) {
    fmt::print(out, "sidecar: tokenizer {}, vocabulary of {}, XXH3-64 of the tokens {}\n",
               printable(sidecar->tokenizer), sidecar->vocab_size,
               sidecar->hash.empty() ? "none" : printable(sidecar->hash));
  } else {
    fmt::print(out, "no sidecar{}\n",
               file.has_header() ? "" : ": the model's vocabulary says whether a token has 2 bytes, as shown, or 4");
  }
  if (sidecar && sidecar->documents) {
    const runtime::Documents documents(file);
    std::uint64_t longest = 0;
    for (std::uint64_t i = 0; i < documents.count(); ++i)
      longest = std::max(longest, documents.begin(i + 1) - documents.begin(i));
    fmt::print(out, "documents: {}, of {:.1f} tokens on average and {} at most\n", documents.count(),
               static_cast<double>(file.count()) / static_cast<double>(std::max<std::uint64_t>(documents.count(), 1)),
               longest);
    if (documents.has_mask())
      fmt::print(out, "mask: {} as labels ({:.1f}%)\n",
                 sidecar->mask->count == 1 ? "1 token counts" : fmt::format("{} tokens count", sidecar->mask->count),
                 100 * static_cast<double>(sidecar->mask->count) / static_cast<double>(file.count()));
  }
  if (sidecar && sidecar->labels) out << labels_line(*sidecar->labels);
  fmt::print(out, "smallest token {}, largest {}\n", least, most);
  fmt::print(out, "first tokens: {}\n", fmt::join(first, " "));
  if (sidecar && sidecar->tokenizer == "byte") {
    std::string text;
    for (const std::uint32_t token : first) {
      const bool plain = token >= 0x20 && token < 0x7f && token != '\\';
      text += plain ? std::string(1, static_cast<char>(token)) : fmt::format("\\x{:02x}", token);
    }
    fmt::print(out, "first tokens as text: {}\n", text);
  }
}

// Whether the file is safetensors, judging by its name or its beginning: the header's length and an open brace.
bool is_safetensors(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return true;
  if (name.ends_with(".bin")) return false;
  const MappedFile file(path);
  const auto bytes = file.bytes();
  std::uint64_t length = 0;
  if (bytes.size() < 10) return false;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length <= bytes.size() - 8 && bytes[8] == std::byte{'{'};
}

bool holds_tensors(const fs::path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "config.json"})
    if (runtime::type_at(folder / name) != fs::file_type::not_found) return true;
  return false;
}

// Whether this is a peft folder. It may contain the config.json of its base model, but not the base's weights.
bool holds_adapter(const fs::path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (runtime::type_at(folder / name) != fs::file_type::not_found) return false;
  return runtime::type_at(folder / runtime::kPeftConfigName) != fs::file_type::not_found;
}

// The end of a message about a folder that cannot be inspected as a whole: names the files in it that can be inspected.
std::string inspectable_in(const fs::path& folder) {
  constexpr std::size_t kMost = 4;
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    const bool inside = at->is_directory(error) && (holds_tensors(path) || runtime::is_checkpoint(path) ||
                                                    !runtime::list_checkpoints(path).empty());
    if (inside || path.extension() == ".bin") found.push_back(path.string());
  }
  std::sort(found.begin(), found.end());
  if (found.empty()) return "";
  const std::size_t shown = std::min(found.size(), kMost);
  return fmt::format(", such as {}", fmt::join(std::span(found).first(shown), ", "));
}

}  // namespace

constexpr std::size_t kMaxBytes = std::size_t{1} << 24;

bool has(const simdjson::dom::element& root, std::string_view key) {
  return root[key].error() == simdjson::SUCCESS;
}

// Every machine file has this key, and no recipe does.
std::string kind_of_toml(const fs::path& path, std::string_view text) {
  if (text.find("task_overhead_us") != std::string_view::npos)
    return fmt::format("is a machine file of strata calibrate: strata plan RECIPE --machine {} predicts with it",
                       shell_word(path.string()));
  return fmt::format("is a recipe: strata plan {} shows what it will do and need", shell_word(path.string()));
}

constexpr std::string_view kDocuments =
    "holds documents, one per line: strata tokenize makes a token file of it, which inspect then shows";

std::string kind_of_lines(const simdjson::dom::element& line) {
  if (has(line, "step") && (has(line, "loss") || has(line, "eval_loss")))
    return "is the report.jsonl of a run, an object for each step: any tool for JSON lines reads it";
  return std::string(kDocuments);
}

std::string kind_of_object(const fs::path& path, const simdjson::dom::element& root) {
  constexpr std::string_view kOfModels =
      "config.json generation_config.json tokenizer.json tokenizer_config.json added_tokens.json "
      "special_tokens_map.json vocab.json preprocessor_config.json";
  const std::string name = path.filename().string();
  const std::string folder = path.has_parent_path() ? shell_word(path.parent_path().string()) : ".";
  if (name == runtime::kManifestName)
    return fmt::format("is the manifest of a checkpoint: strata inspect {} shows all of it", folder);
  if (has_word(kOfModels, name)) return fmt::format("belongs to a model: strata inspect {} shows its weights", folder);
  if (has(root, "width") && has(root, "vocab_size") && has(root, "count"))
    return fmt::format("is the sidecar of a token file: strata inspect {} shows both",
                       shell_word((path.parent_path() / path.stem()).string()));
  if (has(root, "traceEvents")) return "is the timeline of a step: open it at ui.perfetto.dev";
  if (has(root, "weights_hash")) return "is the report.summary of a run: any tool for JSON reads it";
  return "is JSON, but not a safetensors header: any tool for JSON reads it";
}

// If `text` is a JSON object, calls `use` with it.
template <typename Use>
std::string with_object(std::string_view text, Use&& use) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(text.data(), text.size()).get(root) != simdjson::SUCCESS || !root.is_object()) return "";
  return use(root);
}

// Describes a file of another kind that is often kept next to token files and weights, and says what to do with it. The
// text completes a sentence that begins with the path. Recognises the file by its name and first bytes; empty if the
// kind is unknown. Throws Error if the file cannot be read.
std::string other_kind_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with(".bin")) return "";
  const MappedFile file(path);
  const auto bytes = file.bytes().first(std::min(file.bytes().size(), kMaxBytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (path.extension() == ".toml") return kind_of_toml(path, text);
  if (path.extension() == ".model")
    return fmt::format("is a tokenizer: strata tokenize --tokenizer {} makes tokens with it",
                       shell_word(path.string()));
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  const std::size_t end = std::min(text.find('\n', begin), text.size());
  const bool jsonl = path.extension() == ".jsonl";
  if (jsonl || text.find_first_not_of(" \t\r\n", end) != std::string_view::npos) {
    std::string kind = with_object(text.substr(begin, end - begin), kind_of_lines);
    if (!kind.empty() || jsonl) return kind.empty() ? std::string(kDocuments) : kind;
  }
  return with_object(text, [&](const auto& root) { return kind_of_object(path, root); });
}

int inspect(const fs::path& path, Tensors tensors, std::ostream& screen) {
  PrintableStream out(screen);
  const fs::file_type type = runtime::type_at(path);
  if (type == fs::file_type::not_found) fail(Exit::usage, "{} does not exist", path.string());
  if (type == fs::file_type::directory) list_folder(path, out);
  if (const auto checkpoint = type == fs::file_type::directory ? checkpoint_at(path) : std::nullopt) {
    inspect_checkpoint(*checkpoint, tensors, out);
  } else if (type == fs::file_type::directory && holds_adapter(path)) {
    print_adapter(path, out);
    inspect_tensors(path / runtime::kPeftWeightsName, tensors, out);
  } else if (type == fs::file_type::directory && !holds_tensors(path)) {
    fail(Exit::usage,
         "{} holds neither checkpoints nor safetensors: name a folder of checkpoints, one of them, a model's folder or "
         "a file{}",
         path.string(), inspectable_in(path));
  } else if (type == fs::file_type::directory || is_safetensors(path)) {
    inspect_tensors(path, tensors, out);
  } else if (const std::string kind = other_kind_of(path); !kind.empty()) {
    fail(Exit::usage, "{} {}", path.string(), kind);
  } else {
    inspect_tokens(path, out);
  }
  return 0;
}

int inspect(const fs::path& a, const fs::path& b, std::ostream& screen) {
  PrintableStream out(screen);
  const auto checkpoint = [](const fs::path& path) {
    auto found = fs::is_directory(path) ? checkpoint_at(path) : std::nullopt;
    if (!found) fail(Exit::usage, "{} is not a checkpoint: only checkpoints can be compared", path.string());
    return std::move(*found);
  };
  compare_checkpoints(checkpoint(a), checkpoint(b), out);
  return 0;
}

void Statistics::add(std::span<const float> piece) {
  std::uint64_t finite = 0;
  double sum = 0, squares = 0;
  for (const float x : piece)
    if (std::isfinite(x)) {
      ++finite;
      sum += x;
    }
  non_finite_ += piece.size() - finite;
  if (finite == 0) return;
  const auto n = static_cast<double>(finite), before = static_cast<double>(finite_);
  const double mean = sum / n;
  for (const float x : piece)
    if (std::isfinite(x)) squares += (x - mean) * (x - mean);
  const double apart = mean - mean_;
  squares_ += squares + apart * apart * before * n / (before + n);
  mean_ += apart * n / (before + n);
  finite_ += finite;
}

double Statistics::deviation() const {
  return finite_ ? std::sqrt(squares_ / static_cast<double>(finite_)) : 0;
}

}  // namespace strata::launcher
