// Other users planted links in folders that they may write to. No command writes a file through such a link.
#include <gmock/gmock.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "tests/dist/classifier_case.h"

namespace strata::tests {
namespace {

namespace fs = std::filesystem;

// The names created in a folder and its existing subfolders, even if they were removed again.
class MadeNames {
 public:
  explicit MadeNames(const fs::path& folder) : folder_(folder), queue_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    watch(folder);
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      before_.insert(relative(entry.path()));
      if (entry.is_directory()) watch(entry.path());
    }
  }
  ~MadeNames() { close(queue_); }
  MadeNames(const MadeNames&) = delete;
  MadeNames& operator=(const MadeNames&) = delete;

  std::set<std::string> names() const {
    std::set<std::string> out;
    alignas(inotify_event) char buffer[1 << 16];
    for (ssize_t bytes; (bytes = read(queue_, buffer, sizeof buffer)) > 0;)
      for (const char* at = buffer; at < buffer + bytes;) {
        inotify_event event;
        std::memcpy(&event, at, sizeof event);
        out.insert(relative(folders_.at(event.wd) / (at + sizeof event)));
        at += sizeof event + event.len;
      }
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) out.insert(relative(entry.path()));
    for (const std::string& name : before_) out.erase(name);
    return out;
  }

 private:
  void watch(const fs::path& path) {
    folders_[inotify_add_watch(queue_, path.c_str(), IN_CREATE | IN_MOVED_TO)] = path;
  }
  std::string relative(const fs::path& path) const { return fs::relative(path, folder_).string(); }

  fs::path folder_;
  int queue_;
  std::map<int, fs::path> folders_;
  std::set<std::string> before_;
};

class PlantedLinks : public ClassifierCase {
 protected:
  fs::path out() const { return folder_.path() / "out"; }
  std::string in_out(const std::string& name) const { return (out() / name).string(); }

  void empty_out(const std::vector<std::string>& folders) const {
    fs::remove_all(out());
    fs::create_directories(out());
    for (const std::string& name : folders) fs::create_directories(out() / name);
  }

  // Runs `command`, which writes only below out(), once per name that it creates there, each time with a link planted
  // at that name. Names that differ between runs cannot be planted. `makes`: some of the names, so that a command that
  // writes nothing does not pass. `folders`: the folders in out().
  void expect_careful(const std::vector<std::string>& command, const std::vector<std::string>& makes,
                      const std::vector<std::string>& folders = {}) const {
    std::set<std::string> names, folder_names;
    for (const bool again : {false, true}) {
      empty_out(folders);
      const MadeNames made(out());
      const Outcome outcome = run(command);
      ASSERT_EQ(outcome.code, 0) << outcome.all();
      std::set<std::string> now = made.names();
      if (again) std::erase_if(now, [&](const std::string& name) { return !names.contains(name); });
      names = now;
    }
    for (const std::string& name : names)
      if (fs::is_directory(out() / name)) folder_names.insert(name);
    for (const std::string& name : makes) EXPECT_TRUE(names.contains(name)) << name;
    for (const std::string& name : names) {
      SCOPED_TRACE("a link at " + name);
      empty_out(folders);
      fs::remove_all(folder_.path() / "others");
      const fs::path file = folder_.write("others/file", "precious"),
                     folder = folder_.write("others/folder/file", "precious").parent_path();
      for (const std::string& other : names)
        if (other.starts_with(name + "/") && !folder_names.contains(other))
          folder_.write("others/folder" + other.substr(name.size()), "precious");
      fs::create_directories((out() / name).parent_path());
      fs::create_symlink(folder_names.contains(name) ? folder : file, out() / name);
      const Outcome outcome = run(command);
      EXPECT_EQ(outcome.signal, 0) << outcome.all();
      EXPECT_TRUE(outcome.in_time) << outcome.all();
      for (const auto& entry : fs::recursive_directory_iterator(folder_.path() / "others")) {
        if (!entry.is_regular_file() || entry.path().filename().string().starts_with("events.out.tfevents")) continue;
        EXPECT_EQ(folder_.read(fs::relative(entry.path(), folder_.path())), "precious")
            << entry.path() << outcome.all();
      }
      EXPECT_TRUE(fs::exists(file) && fs::exists(folder / "file")) << outcome.all();
    }
  }

  std::vector<std::string> strata(const std::vector<std::string>& words) const {
    std::vector<std::string> all = {kStrata};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }
};

TEST_F(PlantedLinks, TrainingsCheckpointsReportsAndSocket) {
  tokenize("one", {"--labels", "label"});
  const std::vector<std::string> sets = {"checkpoint.dir=" + in_out("checkpoints"),
                                         "checkpoint.every=1",
                                         "checkpoint.resume=none",
                                         "checkpoint.keep_best=true",
                                         "evaluation.every=1",
                                         "report.dir=" + in_out("reports"),
                                         "report.trace_steps=1-2",
                                         "control.listen=unix:" + in_out("socket"),
                                         "zero.optimizer=nvme",
                                         "memory.nvme=" + in_out("drive")};
  const std::vector<std::string> made = {"checkpoints/lock",
                                         "checkpoints/control.json",
                                         "checkpoints/step-00000001",
                                         "checkpoints/step-00000002/manifest.json",
                                         "checkpoints/step-00000002/rank-00000-of-00001.safetensors",
                                         "reports/recipe.toml",
                                         "reports/events.jsonl",
                                         "reports/report.jsonl",
                                         "reports/report.csv",
                                         "reports/tensorboard",
                                         "reports/summary.json",
                                         "reports/trace.json",
                                         "reports/plan.json",
                                         "socket"};
  expect_careful(command("train", "one", sets), made, {"checkpoints", "reports", "drive"});
}

TEST_F(PlantedLinks, TokenFilesAndTheirSidecars) {
  expect_careful(strata({"tokenize", "--tokenizer", tokenizer_, "-o", in_out("t.bin"), "--labels", "label", "--pair",
                         "second", file("texts.jsonl")}),
                 {"t.bin", "t.bin.json", "t.bin.documents", "t.bin.labels.jsonl", "t.bin.types"});
  folder_.write("chat.jsonl", R"({"prompt": "good", "completion": "very good"})"
                              "\n");
  expect_careful(strata({"tokenize", "--tokenizer", "byte", "-o", in_out("t.bin"), "--format", "completion",
                         "--train-on", "completion", file("chat.jsonl")}),
                 {"t.bin", "t.bin.json", "t.bin.documents", "t.bin.mask"});
}

TEST_F(PlantedLinks, PredictionsAndTheirWorkingFiles) {
  learn("one", {"--labels", "label"});
  expect_careful(
      strata({"predict", file("one"), file("texts.jsonl"), "-o", in_out("p.jsonl"), "--set", "device.threads=1"}),
      {"p.jsonl", "p.jsonl.part", "p.jsonl.tokens", "p.jsonl.tokens.json", "p.jsonl.tokens.documents"});
}

TEST_F(PlantedLinks, OutputsOfOtherCommands) {
  learn("one", {"--labels", "label"}, {"report.dir=" + file("reports")});
  expect_careful(strata({"export", file("one"), "-o", in_out("model")}),
                 {"model", "model/config.json", "model/model.safetensors"});
  expect_careful(strata({"report", file("reports"), "-o", in_out("r.html")}), {"r.html"});
  const auto with = [](std::vector<std::string> all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect_careful(with(command("eval", "one"), {"--json", in_out("e.json")}), {"e.json"});
  expect_careful(with(command("plan", "one"),
                      {"--json", in_out("p.json"), "--trace", in_out("p.trace"), "--html", in_out("p.html")}),
                 {"p.json", "p.trace", "p.html"});
  expect_careful(
      strata({"bench", "io", "--dir", in_out("drive"), "--size", "1MiB", "--rounds", "1", "--json", in_out("b.json")}),
      {"b.json"}, {"drive"});
}

TEST_F(PlantedLinks, LaunchLogs) {
  tokenize("one", {"--labels", "label"});
  std::vector<std::string> all = {"env",
                                  "OMPI_ALLOW_RUN_AS_ROOT=1",
                                  "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                  kStrata,
                                  "launch",
                                  "--no-preflight",
                                  "--max-restarts",
                                  "0",
                                  "--logs",
                                  in_out("logs"),
                                  "--"};
  const std::vector<std::string> ranks = command("train", "one", {"checkpoint.resume=none"});
  all.insert(all.end(), ranks.begin() + 1, ranks.end());
  expect_careful(all, {"logs/rank-00000.log", "logs/events.jsonl"}, {"logs"});
}

}  // namespace
}  // namespace strata::tests
