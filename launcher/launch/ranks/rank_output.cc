#include "launcher/launch/ranks/rank_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <regex>
#include <utility>

#include "base/error.h"
#include "base/thread.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/progress.h"

namespace strata::launcher {

namespace {

// The place of "[1,RANK]<stderr>:" in a line of mpirun. A long line has several. Open MPI 5 adds a space.
struct Tag {
  std::size_t begin = std::string_view::npos, end = 0;
  int rank = 0;
  bool is_error = false;
};
Tag find_tag(std::string_view line, std::size_t from, bool spaced) {
  for (std::size_t at = from; (at = line.find('[', at)) != std::string_view::npos; ++at) {
    const char* const end = line.data() + line.size();
    Tag tag{at};
    int job = 0;
    const auto first = std::from_chars(line.data() + at + 1, end, job);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != ',') continue;
    const auto second = std::from_chars(first.ptr + 1, end, tag.rank);
    if (second.ec != std::errc()) continue;
    const std::string_view rest(second.ptr, static_cast<std::size_t>(end - second.ptr));
    tag.is_error = rest.starts_with("]<stderr>:");
    if (!tag.is_error && !rest.starts_with("]<stdout>:")) continue;
    tag.end = static_cast<std::size_t>(second.ptr - line.data()) + 10;
    if (spaced && tag.end < line.size() && line[tag.end] == ' ') ++tag.end;
    return tag;
  }
  return {};
}

// The numbers after the mark of failure_end(): the exit code, the kind of reason, and its step; 0 if one is missing.
using Numbers = std::array<std::int64_t, 3>;
Numbers numbers_in(std::string_view text) {
  Numbers out{};
  const char* at = text.data();
  for (std::int64_t& number : out) {
    at = std::from_chars(at, text.data() + text.size(), number).ptr;
    if (at != text.data() + text.size()) ++at;
  }
  return out;
}

// Parses the prefix "RANK: " of srun --label.
std::optional<std::pair<int, std::string_view>> labelled(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == std::string_view::npos) return std::nullopt;
  int rank = 0;
  const auto [at, error] = std::from_chars(line.data() + begin, line.data() + line.size(), rank);
  const std::string_view rest = line.substr(static_cast<std::size_t>(at - line.data()));
  if (error != std::errc() || !rest.starts_with(":")) return std::nullopt;
  return std::pair(rank, rest.substr(rest.starts_with(": ") ? 2 : 1));
}

std::string node_of(int rank, const std::vector<Share>& shares) {
  for (const Share& share : shares) {
    if (rank < share.ranks) return share.host;
    rank -= share.ranks;
  }
  return "a node";
}

constexpr std::size_t kQueue = 4 << 20;       // bytes that are buffered for a blocked screen or folder
constexpr double kDrainTimeout = 10;          // seconds to wait for the folder at the end
constexpr std::size_t kKept = 1000;           // lines of the starter that are kept; the last ones say why it ended
constexpr std::size_t kParagraph = 16 << 10;  // bytes of a sentence and the lines after it
constexpr std::size_t kLongestPiece = 64 << 10;
constexpr int kStarter = -1;  // the starter, in place of a rank
constexpr int kOut = 1, kError = 2;

void write_to_screen(int to, const std::string& text) {
  if (to == kError) return print_to_stderr(text);
  (void)std::fwrite(text.data(), 1, text.size(), stdout);
  (void)std::fflush(stdout);
}

}  // namespace

LaunchScreen::LaunchScreen() : writer_("the screen of launch", write_to_screen, kQueue, 1) {}

void LaunchScreen::write(bool is_error, std::string text) {
  writer_.add(is_error ? kError : kOut, std::move(text));
}

void LaunchScreen::note(std::string_view text, bool lines) {
  write(true, "strata: " + printable(text, lines) + "\n");
}

RankOutput::RankOutput(Starter starter, LaunchScreen& screen, const std::optional<std::filesystem::path>& logs,
                       int ranks, LogFile::Open open)
    : starter_(starter), live_(shows_live_line(stderr)), log_failure_(std::make_shared<LogFailure>()), screen_(screen) {
  if (!logs) return;
  folder_ = *logs;
  const auto files = std::make_shared<std::map<int, LogFile>>();
  for (int rank = kStarter; rank < ranks; ++rank)
    files->try_emplace(rank, folder_ / (rank == kStarter ? "launch.log" : fmt::format("rank-{:05}.log", rank)),
                       LogFile::Refused::count, open);
  const auto write = [files, failure = log_failure_](int rank, const std::string& line) {
    failure->set(files->at(rank).write(line));
  };
  logs_.emplace("the logs of launch", write, kQueue, kDrainTimeout);
}

RankOutput::~RankOutput() {
  if (open_) screen_.write(true, "\n");
}

bool RankOutput::drain(double seconds) {
  const bool logged = !logs_ || logs_->drain(seconds);
  print_log_failure();
  return screen_.drain(seconds) && logged;
}

void RankOutput::print_log_failure() {
  if (const std::string text = log_failure_->take(folder_); !text.empty()) show(true, "strata: " + text + "\n");
}

void RankOutput::keep(std::string_view line) {
  if (starter_output_.size() >= kKept) starter_output_.erase(starter_output_.begin());
  starter_output_.emplace_back(line);
  if (logs_) logs_->add(kStarter, std::string(line) + "\n");
}

void RankOutput::take(bool is_error, std::string_view line) {
  if (starter_ == Starter::srun) {
    if (const auto found = labelled(line))
      say(found->first, is_error, found->second);
    else
      keep(line);
    return;
  }
  const bool spaced = starter_ == Starter::prterun;
  Tag tag = find_tag(line, 0, spaced);
  if (tag.begin > 0 && !line.empty()) keep(line.substr(0, tag.begin));
  while (tag.end > 0) {
    const Tag next = find_tag(line, tag.end, spaced);
    const bool ends_line = next.end == 0;  // the line break belongs to the last piece
    std::string& piece = pieces_[{tag.rank, tag.is_error}];
    piece += line.substr(tag.end, ends_line ? std::string_view::npos : next.begin - tag.end);
    if (ends_line || piece.size() > kLongestPiece) say(tag.rank, tag.is_error, std::exchange(piece, {}));
    tag = next;
  }
}

void RankOutput::finish() {
  for (auto& [of, piece] : std::exchange(pieces_, {}))
    if (!piece.empty()) say(of.first, of.second, piece);
}

void RankOutput::say(int rank, bool is_error, std::string_view text) {
  heard_ = true;
  std::string line(text);
  const std::size_t end = line.rfind(kFailureEnd);
  const bool is_failure = end != std::string::npos;
  Numbers numbers{};
  if (is_failure) {
    numbers = numbers_in(std::string_view(line).substr(end + 1));
    line.resize(end);
  }
  if (line.starts_with("strata:  ")) {
    // This is a further line of a table.
  } else if (line.starts_with("strata: ")) {
    paragraph_ = last_message_ = line.substr(8);
    paragraph_rank_ = rank;
    in_paragraph_ = true;
  } else if (line.starts_with("step ")) {
    last_message_ = line.substr(0, line.find("  "));
    in_paragraph_ = false;
  } else if (in_paragraph_ && rank == paragraph_rank_ && paragraph_.size() < kParagraph) {
    paragraph_ += "\n" + line;
  }
  // A stop by a signal does not replace an earlier failure, because of which launch may have ended the other ranks.
  const EndReason reason{static_cast<EndReason::Kind>(numbers[1]), numbers[2]};
  if (is_failure && (failure_.empty() || reason.kind != EndReason::Kind::signal)) {
    failure_ = paragraph_;
    failure_code_ = static_cast<int>(numbers[0]);
    end_reason_ = reason;
  }
  line += "\n";
  if (logs_) logs_->add(rank, line);
  print_log_failure();
  show(is_error, line);
}

void RankOutput::show(bool is_error, const std::string& line) {
  const bool is_step = live_ && is_error && line.starts_with("step ");
  if (open_ && !is_step) screen_.write(true, "\n");
  open_ = is_step;
  if (is_step) {
    const std::size_t columns = terminal_columns(stderr);
    screen_.write(true, "\r\033[K" + line.substr(0, std::min(line.size() - 1, columns - 1)));
  } else {
    screen_.write(is_error, line);
  }
}

std::string cause_in(const std::vector<std::string>& starter_output, const std::vector<Share>& shares,
                     const runtime::Mesh& mesh) {
  static const std::regex by_mpirun(
      R"(process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+) \(([^)]*)\))");
  static const std::regex by_srun(R"(error: (\S+): tasks? ([0-9,-]+): (.*))");
  static const std::regex node_failure(R"(Node failure on (\S+))");
  for (std::size_t i = 0; i < starter_output.size(); ++i) {
    const std::string& line = starter_output[i];
    std::smatch found;
    // Open MPI 5 wraps its sentences over lines.
    const std::string both = i + 1 < starter_output.size() ? line + ' ' + starter_output[i + 1] : line;
    if (std::regex_search(both, found, by_mpirun))
      return fmt::format(
          "{} on {} was ended by signal {} ({}): its own last output, or the kernel's log if memory "
          "ran out, says why",
          mesh.name_of(std::stoi(found[1])), node_of(std::stoi(found[1]), shares), found[3].str(), found[4].str());
    if (std::regex_search(line, found, node_failure))
      return fmt::format("Slurm says that node {} failed", found[1].str());
    if (std::regex_search(line, found, by_srun) && found[3].str().find("Exited with") == std::string::npos) {
      const std::string ranks = found[2].str();
      const bool is_one = ranks.find_first_of(",-") == std::string::npos;
      return fmt::format("{} on {} ended: {}", is_one ? mesh.name_of(std::stoi(ranks)) : "rank " + ranks,
                         found[1].str(), found[3].str());
    }
  }
  return {};
}

LineWriter::LineWriter(const std::string& name, Write write, std::size_t most, double timeout)
    : queue_(std::make_shared<Queue>()), most_(most), timeout_(timeout) {
  queue_->write = std::move(write);
  start_thread(name, [queue = queue_] { queue->work(); }).detach();
}

LineWriter::~LineWriter() {
  (void)drain(timeout_);
  const std::lock_guard lock(queue_->mutex);
  queue_->over = true;
  queue_->changed.notify_all();
}

void LineWriter::add(int to, std::string text) {
  const std::lock_guard lock(queue_->mutex);
  if (queue_->bytes + text.size() > most_) {
    if (queue_->lost++ == 0) queue_->lost_to = to;
    return;
  }
  add_lost_note();
  queue_->bytes += text.size();
  queue_->lines.push_back({to, std::move(text)});
  queue_->changed.notify_all();
}

void LineWriter::add_lost_note() {
  if (queue_->lost == 0) return;
  std::string text = fmt::format("strata: missing here, because the output was blocked for too long: {}\n",
                                 queue_->lost == 1 ? "a line" : fmt::format("{} lines", queue_->lost));
  queue_->lost = 0;
  queue_->bytes += text.size();
  queue_->lines.push_back({queue_->lost_to, std::move(text)});
}

bool LineWriter::drain(double seconds) {
  std::unique_lock lock(queue_->mutex);
  add_lost_note();
  queue_->changed.notify_all();
  return queue_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                  [this] { return queue_->lines.empty() && !queue_->writing; });
}

void LineWriter::Queue::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return over || !lines.empty(); });
    // When the destructor's time is up, the remaining lines are dropped.
    if (over) return;
    const Line line = std::move(lines.front());
    lines.pop_front();
    bytes -= line.text.size();
    writing = true;
    lock.unlock();
    write(line.to, line.text);
    lock.lock();
    writing = false;
    changed.notify_all();
  }
}

}  // namespace strata::launcher
