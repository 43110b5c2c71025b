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

TEST_F(Outputs, AnInputIsNotWrittenOverUnderAnyName) {
  const fs::path in = file("in.bin");
  expect_refused({{"--json", in}}, {{"data.train", in}}, AllOf(HasSubstr("--json"), HasSubstr("data.train reads")));
  expect_refused({{"--json", in.parent_path() / "." / "in.bin"}}, {{"data.train", in}}, HasSubstr("data.train reads"));
  fs::create_symlink(in, folder_.path() / "link");
  expect_refused({{"--json", folder_.path() / "link"}}, {{"data.train", in}}, HasSubstr("data.train reads"));
  fs::create_hard_link(in, folder_.path() / "hard");
  expect_refused({{"--json", folder_.path() / "hard"}}, {{"data.train", in}}, HasSubstr("data.train reads"));
  require_apart({{"--json", folder_.path() / "out.json"}}, {{"data.train", in}});
}

TEST_F(Outputs, TwoOutputsAreTwoFiles) {
  const fs::path out = folder_.path() / "none yet";
  expect_refused({{"--json", out}, {"--trace", out}}, {}, AllOf(HasSubstr("--json"), HasSubstr("--trace")));
  // None is there yet, so that only their names tell.
  const fs::path relative = fs::relative(out);
  expect_refused({{"--json", out}, {"--trace", relative}}, {}, HasSubstr("the same file"));
  expect_refused({{"--json", out}, {"--trace", folder_.path() / "." / "none yet"}}, {}, HasSubstr("the same file"));
  fs::create_symlink("none yet", folder_.path() / "link");
  expect_refused({{"--json", out}, {"--trace", folder_.path() / "link"}}, {}, HasSubstr("the same file"));
  fs::create_symlink("loop", folder_.path() / "loop");
  require_apart({{"--json", out}, {"--trace", folder_.path() / "loop"}}, {});
  require_apart({{"--json", "/dev/null"}, {"--trace", "/dev/null"}}, {});
}

TEST_F(Outputs, WhatARunReads) {
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

TEST_F(Outputs, WhatARunWouldNotFind) {
  runtime::Recipe recipe;
  recipe.data.train = {{{file("tokens.bin").string(), (folder_.path() / "*.tok").string()}}};
  recipe.data.validation = {(folder_.path() / "held_out.bin").string()};
  recipe.evaluation.prompts = folder_.path() / "prompts.txt";
  EXPECT_THAT(missing_inputs(recipe),
              testing::ElementsAre(AllOf(HasSubstr("data.train"), HasSubstr("*.tok")),
                                   AllOf(HasSubstr("data.validation"), HasSubstr("held_out.bin")),
                                   AllOf(HasSubstr("evaluation.prompts"), HasSubstr("prompts.txt is not there"))));
  file("a.tok");
  file("held_out.bin");
  file("prompts.txt");
  EXPECT_THAT(missing_inputs(recipe), testing::IsEmpty());
}

}  // namespace
}  // namespace strata::launcher
