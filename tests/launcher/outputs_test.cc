#include "launcher/outputs.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Outputs : public testing::Test {
 protected:
  fs::path file(const std::string& name) const {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "kept";
    return path;
  }
  void expect_refused(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs,
                      const testing::Matcher<const std::string&>& says) const {
    EXPECT_FAILURE(require_apart(outputs, inputs), Exit::usage, says);
  }
  tests::ScratchFolder folder_;
};

TEST_F(Outputs, NeverOverwriteAnInputUnderAnyName) {
  const fs::path in = file("in.bin");
  expect_refused({{"--json", in}}, {{"data.train", in}},
                 AllOf(HasSubstr("--json"), HasSubstr("is also an input (data.train)")));
  expect_refused({{"--json", in.parent_path() / "." / "in.bin"}}, {{"data.train", in}},
                 HasSubstr("is also an input (data.train)"));
  fs::create_symlink(in, folder_.path() / "link");
  expect_refused({{"--json", folder_.path() / "link"}}, {{"data.train", in}},
                 HasSubstr("is also an input (data.train)"));
  fs::create_hard_link(in, folder_.path() / "hard");
  expect_refused({{"--json", folder_.path() / "hard"}}, {{"data.train", in}},
                 HasSubstr("is also an input (data.train)"));
  require_apart({{"--json", folder_.path() / "out.json"}}, {{"data.train", in}});
}

TEST_F(Outputs, MustBeDifferentFiles) {
  const fs::path out = folder_.path() / "none yet";
  expect_refused({{"--json", out}, {"--trace", out}}, {}, AllOf(HasSubstr("--json"), HasSubstr("--trace")));
  // None of these files exists yet, so only their names can be compared.
  const fs::path relative = fs::relative(out);
  expect_refused({{"--json", out}, {"--trace", relative}}, {}, HasSubstr("the same file"));
  expect_refused({{"--json", out}, {"--trace", folder_.path() / "." / "none yet"}}, {}, HasSubstr("the same file"));
  fs::create_symlink("none yet", folder_.path() / "link");
  expect_refused({{"--json", out}, {"--trace", folder_.path() / "link"}}, {}, HasSubstr("the same file"));
  fs::create_symlink("loop", folder_.path() / "loop");
  require_apart({{"--json", out}, {"--trace", folder_.path() / "loop"}}, {});
  require_apart({{"--json", "/dev/null"}, {"--trace", "/dev/null"}}, {});
}

TEST_F(Outputs, MustNotBeFilesThatARunReads) {
  const fs::path tokens = file("tokens.bin"), other = file("other.bin"), recipe_file = file("recipe.toml"),
                 weights = file("model/model.safetensors"), manifest = file("checkpoints/step-00000003/manifest.json"),
                 log = file("checkpoints/log.jsonl");
  runtime::Recipe recipe;
  recipe.data.train = {{{(folder_.path() / "*.bin").string(), (folder_.path() / "missing.bin").string()}}};
  recipe.model.path = folder_.path() / "model";
  recipe.checkpoint.dir = folder_.path() / "checkpoints";
  const auto inputs = inputs_of(recipe, recipe_file);
  for (const fs::path& path : {tokens, other, recipe_file, weights, manifest, folder_.path() / "tokens.bin.json"}) {
    recipe.report.summary = path;
    expect_refused(reports_of(recipe), inputs, HasSubstr("report.summary"));
  }
  recipe.report.summary = log;
  require_apart(reports_of(recipe), inputs);
}

// A run reads these files, whatever it writes.
TEST_F(Outputs, FilesOfTheServiceAndPromptsAreInputs) {
  runtime::Recipe recipe;
  for (auto* const member : {&recipe.evaluation.prompts, &recipe.control.tls_cert, &recipe.control.tls_key,
                             &recipe.control.tls_client_ca, &recipe.control.token_file, &recipe.report.machine}) {
    *member = file("input");
    recipe.report.summary = file("input");
    expect_refused(reports_of(recipe), inputs_of(recipe, std::nullopt), HasSubstr("is also an input"));
    member->reset();
    require_apart(reports_of(recipe), inputs_of(recipe, std::nullopt));
  }
}

TEST_F(Outputs, MustNotUseNamesReservedInCheckpointDir) {
  const auto at = [&](const std::string& name) { return folder_.path() / name; };
  const auto refused = [&](const fs::path& dir, const fs::path& output, const std::string& entry) {
    runtime::Recipe recipe;
    recipe.checkpoint.dir = dir;
    EXPECT_FAILURE(require_outside_checkpoints({{"report.jsonl", output}}, recipe), Exit::usage,
                   AllOf(HasSubstr("report.jsonl " + output.string()),
                         HasSubstr("the run itself writes or removes " + entry + " in checkpoint.dir")));
  };
  // Neither has to exist.
  for (const bool there : {false, true}) {
    if (there) file("ck/step-00000002/manifest.json");
    for (const std::string name : {"control.json", "lock", "step-00000002", "step-00000007.3", "step-reports",
                                   "step-00000002.writing-0123", "step-00000002.deleting"}) {
      refused(at("ck"), at("ck") / name, name);
      refused(at("ck"), at("ck") / name / "deep" / "report.jsonl", name);
      refused(at("ck/"), at("ck/../ck/./" + name), name);
      refused(at("ck"), fs::relative(at("ck/" + name)), name);
      refused(fs::relative(at("ck")), at("ck/" + name), name);
    }
  }
  // Links may lead into the folder or be entries of it.
  fs::create_directory_symlink(at("ck"), at("link"));
  refused(at("ck"), at("link/lock"), "lock");
  refused(at("link"), at("ck/lock"), "lock");
  fs::create_directory(at("far"));
  fs::create_directory_symlink(at("far"), at("ck/step-00000004"));
  refused(at("ck"), at("ck/step-00000004/report.jsonl"), "step-00000004");
  fs::create_symlink(at("ck/control.json"), at("elsewhere.json"));
  refused(at("ck"), at("elsewhere.json"), "control.json");

  runtime::Recipe recipe;
  recipe.checkpoint.dir = at("ck");
  require_outside_checkpoints({{"a", at("ck/report.jsonl")},
                               {"b", at("ck/reports/lock")},
                               {"c", at("ck/reports/step-00000001")},
                               {"d", at("ck")},
                               {"e", at("lock")},
                               {"f", at("step-00000001/x")},
                               {"g", at("ck.old/control.json")},
                               {"h", "/dev/null"}},
                              recipe);
  recipe.checkpoint.dir.reset();
  require_outside_checkpoints({{"a", at("ck/lock")}}, recipe);
}

TEST_F(Outputs, ReportFoldersAndSocketsLieOutsideCheckpointDir) {
  runtime::Recipe recipe;
  recipe.checkpoint.dir = folder_.path() / "ck";
  const fs::path taken = folder_.path() / "ck/step-00000002";
  const auto refused = [&](const char* key) {
    EXPECT_FAILURE(require_outside_checkpoints(report_folders(recipe), recipe), Exit::usage, HasSubstr(key));
  };
  recipe.report.dir = taken;
  refused("report.dir");
  recipe.report.dir.reset();
  recipe.report.tensorboard = taken;
  refused("report.tensorboard");
  recipe.report.tensorboard.reset();
  recipe.control.listen = "unix:" + (folder_.path() / "ck/control.json").string();
  refused("control.listen");
  recipe.control.listen = "unix:" + (folder_.path() / "ck/socket").string();
  recipe.report.dir = folder_.path() / "ck/reports";
  require_outside_checkpoints(report_folders(recipe), recipe);
}

TEST_F(Outputs, MissingInputsAreListed) {
  runtime::Recipe recipe;
  recipe.data.train = {{{file("tokens.bin").string(), (folder_.path() / "*.tok").string()}}};
  recipe.data.validation = {(folder_.path() / "held_out.bin").string()};
  recipe.evaluation.prompts = folder_.path() / "prompts.txt";
  recipe.checkpoint.resume = (folder_.path() / "never").string();
  EXPECT_THAT(missing_inputs(recipe),
              testing::ElementsAre(AllOf(HasSubstr("data.train"), HasSubstr("*.tok")),
                                   AllOf(HasSubstr("data.validation"), HasSubstr("held_out.bin")),
                                   AllOf(HasSubstr("evaluation.prompts"), HasSubstr("prompts.txt does not exist")),
                                   AllOf(HasSubstr("checkpoint.resume"), HasSubstr("never does not exist"))));
  recipe.checkpoint.resume = "auto";
  file("a.tok");
  file("held_out.bin");
  file("prompts.txt");
  EXPECT_THAT(missing_inputs(recipe), testing::IsEmpty());
}

}  // namespace
}  // namespace strata::launcher
