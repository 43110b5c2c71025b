#include "launcher/screen/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ProgressTest : public testing::Test {
 protected:
  ProgressTest() {
    unsetenv("STRATA_PROGRESS");
    unsetenv("COLUMNS");
    job_.recipe.training.max_steps = 10;
  }
  ~ProgressTest() override {
    unsetenv("STRATA_PROGRESS");
    unsetenv("COLUMNS");
  }

  static runtime::StepReport report(std::int64_t step, double step_ms) {
    runtime::StepReport report{.step = step,
                               .loss = 2.5,
                               .grad_norm = 0.5,
                               .learning_rate = 1e-3,
                               .tokens = 1000,
                               .step_ms = step_ms,
                               .disk_bytes = 250'000'000};
    report.epoch = 0.25;
    return report;
  }

  // The text that a run with these step times writes to a file.
  std::string shown(std::initializer_list<double> step_ms) {
    std::FILE* file = std::tmpfile();
    {
      Progress progress(job_, file);
      std::int64_t step = 0;
      for (const double ms : step_ms) progress.show(report(++step, ms));
    }
    std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
    std::rewind(file);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
    std::fclose(file);
    return text;
  }

  runtime::Job job_{};
};

TEST_F(ProgressTest, AFileGetsALineAStepWithoutControlCodes) {
  EXPECT_EQ(shown({100, 100}),
            "step 1/10  loss 2.5000  lr 1.00e-03  norm 0.500  10000 tokens/s  epoch 0.25  1s left\n"
            "step 2/10  loss 2.5000  lr 1.00e-03  norm 0.500  10000 tokens/s  epoch 0.25  1s left\n");
}

TEST_F(ProgressTest, ReportEverySelectsTheStepsShown) {
  job_.recipe.report.every = 3;
  const std::string text = shown({100, 100, 100, 100, 100, 100, 100, 100, 100, 100});
  std::string steps;
  for (std::size_t at = 0; (at = text.find("step ", at)) != std::string::npos; ++at)
    steps += text.substr(at + 5, 2) + " ";
  EXPECT_EQ(steps, "1/ 3/ 6/ 9/ 10 ") << "the first, every third, and the last: " << text;
}

TEST_F(ProgressTest, TheFirstStepDoesNotCountForTheSpeed) {
  const std::string text = shown({5000, 100, 100});
  EXPECT_THAT(text, HasSubstr("step 1/10  loss 2.5000  lr 1.00e-03  norm 0.500  200 tokens/s"));
  EXPECT_THAT(text, HasSubstr("step 2/10  loss 2.5000  lr 1.00e-03  norm 0.500  10000 tokens/s"));
  EXPECT_THAT(text, HasSubstr("step 3/10  loss 2.5000  lr 1.00e-03  norm 0.500  10000 tokens/s"));
}

TEST_F(ProgressTest, SmoothsTheTimeLeftButNotTheSpeed) {
  EXPECT_THAT(shown({100, 100, 200}), HasSubstr("5000 tokens/s"));
}

TEST_F(ProgressTest, TheEnvironmentCanRequestALiveLineInAPipe) {
  setenv("STRATA_PROGRESS", "live", 1);
  setenv("COLUMNS", "30", 1);
  // The second step comes too soon after the first to be shown.
  EXPECT_EQ(shown({100, 100}), "\r\033[Kstep 1/10  loss 2.5000  10000\n");
}

TEST_F(ProgressTest, ANarrowTerminalOmitsNormEpochAndRate) {
  setenv("STRATA_PROGRESS", "live", 1);
  setenv("COLUMNS", "80", 1);
  EXPECT_EQ(shown({100}), "\r\033[Kstep 1/10  loss 2.5000  lr 1.00e-03  10000 tokens/s  epoch 0.25  1s left\n");
  setenv("COLUMNS", "65", 1);
  EXPECT_EQ(shown({100}), "\r\033[Kstep 1/10  loss 2.5000  lr 1.00e-03  10000 tokens/s  1s left\n");
  setenv("COLUMNS", "55", 1);
  EXPECT_EQ(shown({100}), "\r\033[Kstep 1/10  loss 2.5000  10000 tokens/s  1s left\n");
}

// The text that a process in a session of its own writes into a pipe. Its session has a terminal with this many
// columns; 0: none.
template <typename Write>
std::string from_session(unsigned short columns, Write&& write_into) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  winsize size{};
  size.ws_row = 24;
  size.ws_col = columns;
  int controller = -1;
  const pid_t child = columns > 0 ? forkpty(&controller, nullptr, nullptr, &size) : fork();
  if (child == 0) {
    if (columns == 0) setsid();
    std::FILE* out = fdopen(ends[1], "w");
    write_into(out);
    std::fclose(out);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  if (controller >= 0) close(controller);
  return text;
}

// mpirun puts a pipe between the ranks and the terminal in the same way, and does not export COLUMNS.
TEST_F(ProgressTest, ALiveLineInAPipeFitsTheTerminal) {
  setenv("STRATA_PROGRESS", "live", 1);
  const auto write = [&](std::FILE* out) {
    Progress progress(job_, out);
    progress.show(report(1, 100));
  };
  const std::string least = "step 1/10  loss 2.5000  10000 tokens/s  1s left";
  EXPECT_EQ(from_session(41, write), "\r\033[K" + least.substr(0, 40) + "\n");
  EXPECT_EQ(from_session(200, write),
            "\r\033[Kstep 1/10  loss 2.5000  lr 1.00e-03  norm 0.500  10000 tokens/s  epoch 0.25  1s left\n");
  EXPECT_EQ(from_session(0, write),
            "\r\033[Kstep 1/10  loss 2.5000  lr 1.00e-03  10000 tokens/s  epoch 0.25  1s left\n")
      << "unknown width: 80 columns, which most terminals have";
  setenv("COLUMNS", "46", 1);
  EXPECT_EQ(from_session(200, write), "\r\033[K" + least.substr(0, 45) + "\n") << "the width is COLUMNS";
}

TEST_F(ProgressTest, ShowsTheDrivesRates) {
  job_.plan.io_bytes.read[2] = 1;
  // The step's bytes over the step's time: 250 MB in 100 ms.
  EXPECT_THAT(shown({100}), testing::EndsWith("1s left  disk 2.50 GB/s\n"));
}

TEST_F(ProgressTest, AlwaysShowsTheLastStep) {
  setenv("STRATA_PROGRESS", "live", 1);
  setenv("COLUMNS", "120", 1);
  job_.recipe.training.max_steps = 2;
  EXPECT_THAT(shown({100, 100}), AllOf(HasSubstr("step 2/2"), testing::EndsWith("0s left\n")));
}

TEST_F(ProgressTest, ATerminalGetsALiveLineUnlessLinesAreRequested) {
  for (const bool lines : {false, true}) {
    if (lines) setenv("STRATA_PROGRESS", "lines", 1);
    int controller = -1, terminal = -1;
    ASSERT_EQ(openpty(&controller, &terminal, nullptr, nullptr, nullptr), 0);
    std::FILE* file = fdopen(terminal, "w");
    {
      Progress progress(job_, file);
      progress.show(report(1, 100));
    }
    std::fflush(file);
    std::string text(4096, '\0');
    const ssize_t n = read(controller, text.data(), text.size());
    ASSERT_GT(n, 0);
    text.resize(static_cast<std::size_t>(n));
    if (lines) {
      EXPECT_THAT(text, Not(HasSubstr("\033")));
    } else {
      EXPECT_THAT(text, HasSubstr("\r\033[Kstep 1/10"));
    }
    std::fclose(file);
    close(controller);
  }
}

TEST_F(ProgressTest, AnotherValueIsRefused) {
  setenv("STRATA_PROGRESS", "loud", 1);
  try {
    Progress progress(job_, stderr);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::usage);
    EXPECT_THAT(error.what(), HasSubstr("STRATA_PROGRESS is \"loud\""));
  }
}

}  // namespace
}  // namespace strata::launcher
