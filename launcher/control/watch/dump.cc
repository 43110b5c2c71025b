#include "launcher/control/watch/dump.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/words.h"

namespace strata::launcher::control {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxFrames = 32;
constexpr auto kDumpAnswer = std::chrono::milliseconds(100);  // the time for a thread to begin
constexpr auto kToWrite = std::chrono::milliseconds(2000);    // the time for it to end: unwinding may wait for a drive
int dump_signal() {
  return SIGRTMIN + 7;
}

// The thread that is asked writes its frames here. Only one thread is asked at a time. `asked` is its thread ID,
// negative while it writes and 0 when it is done, so that a late thread does not overwrite the frames of the next one.
std::array<void*, kMaxFrames> frames;
std::atomic<int> asked{0}, count{0};

void answer(int) {
  const int error = errno;
  const auto own = static_cast<int>(syscall(SYS_gettid));
  if (int expected = own; asked.compare_exchange_strong(expected, -own)) {
    count.store(backtrace(frames.data(), kMaxFrames));
    asked.store(0);
  }
  errno = error;
}

// Looks up this program's own functions by address, because they are in no dynamic symbol table.
class Symbols {
 public:
  Symbols() try {
    const MappedFile file("/proc/self/exe");
    const auto bytes = file.bytes();
    const auto at = [&]<typename T>(std::size_t offset, T& out) {
      if (offset + sizeof out > bytes.size()) return false;
      std::memcpy(&out, bytes.data() + offset, sizeof out);
      return true;
    };
    Elf64_Ehdr header;
    if (!at(0, header)) return;
    for (int i = 0; i < header.e_shnum; ++i) {
      Elf64_Shdr table, strings;
      if (!at(header.e_shoff + static_cast<std::size_t>(i) * sizeof table, table) || table.sh_type != SHT_SYMTAB ||
          !at(header.e_shoff + table.sh_link * sizeof strings, strings))
        continue;
      for (std::size_t offset = 0; offset < table.sh_size; offset += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        if (!at(table.sh_offset + offset, symbol) || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
        const std::size_t name = strings.sh_offset + symbol.st_name;
        if (name >= bytes.size()) continue;
        const auto* text = reinterpret_cast<const char*>(bytes.data()) + name;
        names_.emplace(symbol.st_value,
                       std::pair(symbol.st_size, std::string(text, strnlen(text, bytes.size() - name))));
      }
    }
  } catch (const Error&) {
  }
  std::string find(std::size_t address) const {
    auto next = names_.upper_bound(address);
    if (next == names_.begin()) return {};
    --next;
    return address < next->first + next->second.first ? next->second.second : std::string();
  }

 private:
  std::map<std::size_t, std::pair<std::size_t, std::string>> names_;
};

std::string text_of_frame(void* address, const Symbols& symbols) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return fmt::format("{}", address);
  const auto offset = static_cast<std::size_t>(static_cast<char*>(address) - static_cast<char*>(info.dli_fbase));
  Dl_info own{};
  const bool ours = dladdr(reinterpret_cast<void*>(&answer), &own) != 0 && own.dli_fbase == info.dli_fbase;
  std::string name = info.dli_sname ? info.dli_sname : ours ? symbols.find(offset) : "";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      name.empty() ? nullptr : abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  if (plain) name = plain.get();
  return fmt::format("{} ({}+{:#x})", name.empty() ? "?" : name, fs::path(info.dli_fname).filename().string(), offset);
}

std::string line_of(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<int> threads_of(int pid) {
  std::vector<int> out;
  std::error_code error;
  for (fs::directory_iterator at(fmt::format("/proc/{}/task", pid), error), end; !error && at != end;
       at.increment(error))
    out.push_back(std::atoi(at->path().filename().c_str()));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

void prepare_backtraces() {
  // The first backtrace loads a library, which must not happen in a signal handler.
  std::array<void*, 1> ignored;
  (void)backtrace(ignored.data(), 1);
  struct sigaction action {};
  action.sa_handler = &answer;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  (void)sigaction(dump_signal(), &action, nullptr);
}

std::string backtraces() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const Symbols symbols;
  std::string out;
  const int self = static_cast<int>(syscall(SYS_gettid));
  for (const int thread : threads_of(getpid())) {
    if (thread == self) continue;
    // Bit n - 1 of the mask is signal n.
    std::ifstream status(fmt::format("/proc/self/task/{}/status", thread));
    std::uint64_t blocked = 0;
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("SigBlk:")) blocked = std::strtoull(line.c_str() + 7, nullptr, 16);
    if ((blocked >> (dump_signal() - 1) & 1) != 0) continue;
    const auto wait = [](int while_it_is, std::chrono::milliseconds time) {
      const auto until = std::chrono::steady_clock::now() + time;
      while (asked.load() == while_it_is && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    };
    int none = 0;
    if (!asked.compare_exchange_strong(none, thread)) return out;  // an earlier thread is still writing
    if (syscall(SYS_tgkill, getpid(), thread, dump_signal()) != 0) {
      asked.store(0);
      continue;
    }
    wait(thread, kDumpAnswer);
    int expected = thread;
    if (asked.compare_exchange_strong(expected, 0)) continue;
    wait(-thread, kToWrite);
    if (asked.load() != 0) {
      out += fmt::format("{} has not finished writing its stack: other threads are not asked\n", thread);
      return out;
    }
    // The first two frames belong to the handler.
    for (int i = 2; i < count.load(); ++i)
      out += fmt::format("{} {}\n", thread, text_of_frame(frames[static_cast<std::size_t>(i)], symbols));
  }
  return out;
}

pb::RankDump dump_of(int rank, const std::string& node, const runtime::RankProgress& progress, const TaskNames& names,
                     const std::string& traces) {
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  const auto seconds = [&](std::int64_t since) { return since == 0 ? 0 : static_cast<double>(now - since) * 1e-9; };
  constexpr auto kRelaxed = std::memory_order_relaxed;
  pb::RankDump out;
  out.set_rank(rank);
  out.set_node(node);
  out.set_coordinates(names.mesh.coordinates_text({&rank, 1}));
  const int pid = progress.pid.load(kRelaxed);
  out.set_pid(pid);
  const RankView view = view_of(report_of(rank, progress, now));
  out.set_phase(fmt::format("in {}, {} steps done, its process was seen to run {:.1f} s ago", view.text(names),
                            view.step, view.beat_age));
  for (std::size_t lane = 0; lane < runtime::kLanes; ++lane) {
    const RankView::Lane& at = view.lanes[lane];
    if (at.place.task < 0) continue;
    pb::LaneDump& entry = *out.add_lanes();
    entry.set_lane(std::string(runtime::kLaneNames[lane]));
    entry.set_task(std::string(names.text(at.place.task, rank)));
    entry.set_step(at.place.step);
    entry.set_running(at.place.running);
    entry.set_seconds(at.age);
  }
  const std::uint64_t done = progress.done_count.load(kRelaxed);
  for (std::uint64_t i = done > runtime::RankProgress::kDone ? done - runtime::RankProgress::kDone : 0; i < done; ++i) {
    const auto& run = progress.done[i % runtime::RankProgress::kDone];
    const runtime::LanePlace place = runtime::unpacked(run.place.load(kRelaxed));
    const std::uint32_t lane = run.lane.load(kRelaxed);
    if (place.task < 0 || lane >= runtime::kLanes) continue;
    pb::TaskRun& entry = *out.add_last_tasks();
    entry.set_lane(std::string(runtime::kLaneNames[lane]));
    entry.set_task(std::string(names.text(place.task, rank)));
    entry.set_step(place.step);
    entry.set_seconds(static_cast<double>(run.end.load(kRelaxed) - run.begin.load(kRelaxed)) * 1e-9);
    entry.set_seconds_ago(seconds(run.end.load(kRelaxed)));
  }
  for (const int thread : threads_of(pid)) {
    const fs::path folder = fmt::format("/proc/{}/task/{}", pid, thread);
    pb::ThreadDump& entry = *out.add_threads();
    entry.set_id(thread);
    entry.set_name(line_of(folder / "comm"));
    const std::string stat = line_of(folder / "stat");
    const std::size_t end = stat.rfind(')');
    std::string state = end == std::string::npos || end + 2 >= stat.size() ? "?" : stat.substr(end + 2, 1);
    if (const std::string where = line_of(folder / "wchan"); !where.empty() && where != "0") state += ", " + where;
    entry.set_state(state);
    const std::string prefix = fmt::format("{} ", thread);
    for (const std::string_view line : split_list(traces, '\n'))
      if (line.starts_with(prefix)) entry.add_frames(std::string(line.substr(prefix.size())));
  }
  return out;
}

std::string text_of(const pb::Dump& dump) {
  std::string out;
  for (const pb::RankDump& rank : dump.ranks()) {
    out += fmt::format("rank {}{} on {}, pid {}, {}\n", rank.rank(),
                       rank.coordinates().empty() ? "" : fmt::format(" ({})", rank.coordinates()), rank.node(),
                       rank.pid(), rank.phase());
    for (const pb::LaneDump& lane : rank.lanes())
      out += fmt::format("  {}: {} '{}' of step {} for {:.3f} s\n", lane.lane(), lane.running() ? "in" : "done with",
                         lane.task(), lane.step(), lane.seconds());
    for (const pb::TaskRun& task : rank.last_tasks())
      out += fmt::format("  {:.3f} s ago: {} '{}' of step {} took {:.3f} ms\n", task.seconds_ago(), task.lane(),
                         task.task(), task.step(), task.seconds() * 1e3);
    for (const pb::ThreadDump& thread : rank.threads()) {
      out += fmt::format("  thread {} ({}), {}\n", thread.id(), thread.name(), thread.state());
      for (const std::string& frame : thread.frames()) out += fmt::format("    {}\n", frame);
    }
  }
  return out;
}

}  // namespace strata::launcher::control
