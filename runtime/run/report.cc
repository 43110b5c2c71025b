#include "runtime/run/report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "runtime/forecast/simulator.h"

namespace strata::runtime {

namespace {

// Bytes of the lines at the start of a report.jsonl whose steps are at most `step`.
std::size_t bytes_up_to(const std::filesystem::path& path, std::int64_t step) {
  std::ifstream file(path);
  std::size_t bytes = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    long long of_line = 0;
    if (std::sscanf(line.c_str(), "{\"step\":%lld,", &of_line) != 1 || of_line > step) break;
    bytes += line.size() + 1;
  }
  return bytes;
}

}  // namespace

ReportFile::ReportFile(const std::filesystem::path& path, std::int64_t kept_step) : path_(path), kept_step_(kept_step) {
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  is_new_ = fd_ >= 0;
  // Not blocking: a pipe's reader is waited for, but not for ever.
  constexpr int kTries = 100;
  for (int i = 0; fd_ < 0 && (i == 0 ? errno == EEXIST : errno == ENXIO) && i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  }
  if (fd_ < 0 && errno == ENOENT)
    fail(Exit::failed, "{} cannot be written: there is no folder {}: make it, or name another file", path.string(),
         path.parent_path().string());
  if (fd_ < 0)
    fail(Exit::failed, "{} cannot be written: {}", path.string(),
         errno == ENXIO ? "it is a pipe that nobody reads" : std::strerror(errno));
  (void)fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) & ~O_NONBLOCK);
}

ReportFile::~ReportFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (is_new_ && !written_) ::unlink(path_.c_str());
}

ReportFile::ReportFile(ReportFile&& other) noexcept
    : path_(std::move(other.path_)),
      kept_step_(other.kept_step_),
      fd_(std::exchange(other.fd_, -1)),
      is_new_(other.is_new_),
      written_(other.written_) {}

// What the file held before, but for the steps that are kept.
void ReportFile::cut() {
  struct stat status {};
  if (fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) return;  // a pipe, a terminal
  const auto kept = static_cast<off_t>(kept_step_ > 0 ? bytes_up_to(path_, kept_step_) : 0);
  if (ftruncate(fd_, kept) != 0 || lseek(fd_, kept, SEEK_SET) != kept)
    fail(Exit::failed, "writing {} failed: {}", path_.string(), std::strerror(errno));
}

void ReportFile::write(const std::string& text) {
  if (!std::exchange(written_, true)) cut();
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(Exit::failed, "writing {} failed: {}", path_.string(), std::strerror(errno));
    done += static_cast<std::size_t>(n);
  }
}

void ReportFile::close() {
  // EINVAL: a pipe or terminal, which cannot be flushed and need not be.
  if (fsync(fd_) != 0 && errno != EINVAL && errno != EROFS)
    fail(Exit::failed, "writing {} failed: {}", path_.string(), std::strerror(errno));
  ::close(std::exchange(fd_, -1));
}

std::string json_number(double x) {
  return std::isfinite(x) ? fmt::format("{}", x) : "null";
}

std::string step_line(const StepReport& r) {
  char hex[64] = "null";
  if (std::isfinite(r.loss)) std::snprintf(hex, sizeof hex, "\"%a\"", r.loss);
  return fmt::format(
      "{{\"step\":{},\"loss\":{},\"loss_hex\":{},\"grad_norm\":{},\"lr\":{},\"loss_scale\":{},\"skipped\":{},"
      "\"tokens\":{},\"step_ms\":{:.3f},\"tokens_per_s\":{:.1f}}}\n",
      r.step, json_number(r.loss), hex, json_number(r.grad_norm), json_number(r.learning_rate),
      json_number(r.loss_scale), r.skipped, r.tokens, r.step_ms, static_cast<double>(r.tokens) / r.step_ms * 1e3);
}

std::string memory_json(const Memory& planned, const Memory* measured) {
  const auto kinds = [](const TierMemory& memory) {
    std::string text;
    for (std::size_t k = 0; k < kKinds; ++k)
      text += fmt::format("{}\"{}\":{}", k ? "," : "", kKindNames[k], memory.by_kind[k]);
    return "{" + text + "}";
  };
  std::string text;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    text += fmt::format("{}\"{}\":{{\"planned_peak_bytes\":{}", tier ? "," : "", kTierNames[tier], planned[tier].peak);
    if (measured) text += fmt::format(",\"measured_peak_bytes\":{}", (*measured)[tier].peak);
    text += ",\"by_kind\":" + kinds(measured ? (*measured)[tier] : planned[tier]);
    if (measured) text += ",\"planned_by_kind\":" + kinds(planned[tier]);
    text += "}";
  }
  return "{" + text + "}";
}

std::string comm_json(const comm::CommBytes& b) {
  return fmt::format("{{\"all_gather\":{},\"all_to_all\":{},\"broadcast\":{},\"consensus\":{},\"total\":{}}}",
                     b.all_gather, b.all_to_all, b.broadcast, b.consensus, b.total());
}

std::string exposed_json(const StepPlan& plan, std::span<const Span> spans, std::int64_t begin) {
  const auto exposed = exposed_ms(plan, spans, begin);
  std::string text;
  for (std::size_t lane = 1; lane < kTrainingLanes; ++lane)
    text += fmt::format("{}\"{}\":{:.3f}", lane > 1 ? "," : "", kLaneNames[lane], exposed[lane]);
  return "{" + text + "}";
}

std::string io_json(const IoBytes& bytes) {
  std::string text;
  for (std::size_t tier = 1; tier < kTiers; ++tier)
    text += fmt::format("{}\"{}\":{{\"read\":{},\"written\":{}}}", tier > 1 ? "," : "", kTierNames[tier],
                        bytes.read[tier], bytes.written[tier]);
  return "{" + text + "}";
}

std::string summary_json(const StepPlan& plan, const Summary& s) {
  std::string rss;
  for (const std::uint64_t bytes : s.peak_rss) rss += fmt::format("{}{}", rss.empty() ? "" : ",", bytes);
  std::string checkpoints;
  if (s.checkpoints)
    checkpoints =
        fmt::format("\"checkpoints\":{{\"written\":{},\"bytes\":{},\"held_ms\":{:.3f},\"last_ms\":{:.3f}}},",
                    s.checkpoints->written, s.checkpoints->bytes, s.checkpoints->held_ms, s.checkpoints->last_ms);
  const std::string data = s.data.empty() ? "" : "\"data\":" + s.data + ",";
  std::string gpu;
  if (s.gpu_before && s.gpu_at_end)
    gpu = fmt::format("\"gpu_memory\":{{\"total_bytes\":{},\"free_before_bytes\":{},\"free_at_end_bytes\":{}}},",
                      s.gpu_at_end->total, s.gpu_before->available, s.gpu_at_end->available);
  const double tflops = s.tokens_per_s * s.flops_per_token / 1e12;
  return fmt::format(
      "{{\"steps\":{},\"tokens\":{},\"tokens_per_s\":{},\"model_flops_per_token\":{},\"tflops\":{},\"mfu\":null,"
      "\"weights_hash\":\"{}\",\"ranks\":{},\"memory\":{},\"process_peak_rss_bytes\":[{}],{}\"comm_bytes\":"
      "{},\"io_bytes\":{},\"exposed_ms\":{},\"exposed_step\":{},\"graph_steps\":{},\"validate_ms\":{:.3f},{}{}"
      "\"exit\":{}}}\n",
      s.steps, s.tokens, json_number(s.tokens_per_s), json_number(s.flops_per_token), json_number(tflops),
      s.weights_hash, plan.ranks, memory_json(plan.memory, &s.measured), rss, gpu, comm_json(s.comm_bytes),
      io_json(s.io_bytes), exposed_json(plan, s.spans), s.timed_step, s.graph_steps, s.validate_ms, checkpoints, data,
      s.exit);
}

}  // namespace strata::runtime
