#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files/descriptor.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"
#include "base/protobuf.h"
#include "runtime/run/reports/report_file.h"

namespace strata::runtime {
namespace {

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0x82f63b78u : 0);
    table[byte] = rest;
  }
  return table;
}();

namespace fs = std::filesystem;

constexpr std::string_view kBegins = "events.out.tfevents.", kEnds = ".strata";
constexpr std::size_t kFrame = 16;  // length and its checksum, 12 bytes, before a record's bytes; 4 bytes after them

// Little-endian, like the machines that Strata runs on.
template <typename T>
void append(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <typename T>
T read_at(std::string_view bytes, std::size_t at) {
  T value{};
  bytes.copy(reinterpret_cast<char*>(&value), sizeof value, at);
  return value;
}

// As in TensorFlow's record files, the checksum is masked, because it protects bytes that contain checksums themselves.
std::uint32_t masked_sum(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

// Protobuf's wire format: a field's key is its number and type, and bytes are preceded by their length.
enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void append_key(std::string& out, int field, WireType wire) {
  append_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}
void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_key(out, field, WireType::bytes);
  append_varint(out, bytes.size());
  out += bytes;
}

// Event in tensorflow/core/util/event.proto.
enum EventField : int { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
std::string event_of(double time, std::int64_t step, EventField field, std::string_view content) {
  std::string out;
  append_key(out, kWallTime, WireType::fixed64);
  append(out, time);
  if (step != 0) {
    append_key(out, kStep, WireType::varint);
    append_varint(out, static_cast<std::uint64_t>(step));
  }
  append_bytes(out, field, content);
  return out;
}

// A Summary with one Value per scalar: tag = 1, simple_value = 2.
std::string summary_of(std::span<const Scalar> scalars) {
  std::string out;
  for (const Scalar& scalar : scalars) {
    std::string value;
    append_bytes(value, 1, scalar.tag);
    append_key(value, 2, WireType::fixed32);
    append(value, static_cast<float>(scalar.value));
    append_bytes(out, 1, value);
  }
  return out;
}

// The step of an event with scalars; nullopt if it has none.
std::optional<std::int64_t> step_of_scalars(std::string_view event) {
  std::int64_t step = 0;
  bool scalars = false;
  each_protobuf_field(event, [&](std::uint64_t field, std::uint64_t value, std::string_view) {
    if (field == kStep) step = static_cast<std::int64_t>(value);
    scalars = scalars || field == kSummary;
  });
  return scalars ? std::optional(step) : std::nullopt;
}

std::vector<fs::path> own_files(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error)
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
      if (const std::string name = entry.path().filename().string();
          name.starts_with(kBegins) && name.ends_with(kEnds) && fs::is_regular_file(entry.symlink_status()))
        out.push_back(entry.path());
  if (error)
    fail(Exit::failed, "report.tensorboard = {}: event files cannot be written there: {}", folder.string(),
         error.message());
  std::sort(out.begin(), out.end());
  return out;
}

// TensorBoard reads a folder's files in the order of their names, so the name of a new file contains a later second.
fs::path next_file(const fs::path& folder, const std::vector<fs::path>& earlier) {
  std::int64_t second =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (!earlier.empty()) {
    const std::string last = earlier.back().filename().string();
    second = std::max<std::int64_t>(second, std::atoll(last.c_str() + kBegins.size()) + 1);
  }
  return folder / fmt::format("{}{:010}{}", kBegins, second, kEnds);
}

// An event file that is being written is locked.
void require_unused(const fs::path& folder, const std::vector<fs::path>& files) {
  for (const fs::path& path : files) {
    const Descriptor file(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.get() >= 0 && lock_file(file) == EWOULDBLOCK)
      fail(Exit::usage,
           "report.tensorboard = {} is in use: another run writes its reports there; choose another for this run",
           folder.string());
  }
}

std::vector<fs::path> unused_files(const fs::path& folder) {
  std::vector<fs::path> files = own_files(folder);
  require_unused(folder, files);
  return files;
}

// Cuts a file to the events that a resumed run keeps.
void cut(const fs::path& path, const std::optional<KeptLines>& keep) {
  std::size_t kept = 0, size = 0;
  if (keep) {
    const MappedFile file(path);
    size = file.bytes().size();
    kept = events_up_to({reinterpret_cast<const char*>(file.bytes().data()), size}, *keep);
  }
  std::error_code error;
  if (kept == 0)
    fs::remove(path, error);
  else if (kept < size)
    fs::resize_file(path, kept, error);
  if (error)
    fail(Exit::failed, "{} cannot be truncated to step {}: {}", path.string(), keep ? keep->step : 0, error.message());
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t sum = ~std::uint32_t{0};
  for (const char c : bytes) sum = sum >> 8 ^ kCrcTable[(sum ^ static_cast<unsigned char>(c)) & 0xff];
  return ~sum;
}

std::string record_of(std::string_view bytes) {
  std::string out;
  append(out, static_cast<std::uint64_t>(bytes.size()));
  append(out, masked_sum(out));
  out += bytes;
  append(out, masked_sum(bytes));
  return out;
}

std::size_t events_up_to(std::string_view file, const KeptLines& kept) {
  std::size_t at = 0;
  while (file.size() - at >= kFrame) {
    const auto length = read_at<std::uint64_t>(file, at);
    if (masked_sum(file.substr(at, 8)) != read_at<std::uint32_t>(file, at + 8) || length > file.size() - at - kFrame)
      break;  // a killed run stopped writing here
    const std::string_view event = file.substr(at + 12, length);
    if (masked_sum(event) != read_at<std::uint32_t>(file, at + 12 + length)) break;
    if (const auto step = step_of_scalars(event)) {
      // Only evaluations have this tag.
      const bool again = *step == kept.step && !kept.evaluation && event.find("eval/loss") != event.npos;
      if (*step > kept.step || again) break;
    }
    at += kFrame + length;
  }
  return at;
}

EventFile::EventFile(fs::path folder, const std::optional<KeptLines>& kept)
    : folder_(std::move(folder)),
      kept_(kept),
      earlier_(unused_files(folder_)),
      file_(next_file(folder_, earlier_), "report.tensorboard") {}

void EventFile::write(double time, std::int64_t step, std::span<const Scalar> scalars) {
  std::string text;
  if (!std::exchange(begun_, true)) {
    for (const fs::path& path : earlier_) cut(path, kept_);
    text = record_of(event_of(time, 0, kFileVersion, "brain.Event:2"));
    // SessionLog, status = START: makes an open TensorBoard discard this step and later ones if it has read them.
    text += record_of(event_of(time, kept_ ? kept_->step + 1 : 1, kSessionLog, "\x08\x01"));
  }
  file_.write(text + record_of(event_of(time, step, kSummary, summary_of(scalars))));
}

}  // namespace strata::runtime
