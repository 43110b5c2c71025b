#include "device/cuda/libraries/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::device::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sets an environment variable for a test, and restores it afterwards.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* was = std::getenv(name)) was_ = was;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { was_.empty() ? unsetenv(name_) : setenv(name_, was_.c_str(), 1); }

 private:
  const char* name_;
  std::string was_;
};

// A system library under a name that is not on the loader's path.
void put_library(const tests::ScratchFolder& folder, const std::string& name) {
  const Library real = Library::open({"the mathematics library", {"libm.so.6"}, "libc6"});
  std::filesystem::create_directories((folder.path() / name).parent_path());
  std::filesystem::copy_file(real.path(), folder.path() / name);
}

TEST(Library, IsFoundOnTheLoadersPathWithItsFile) {
  const Library library = Library::open({"the mathematics library", {"libm.so.6"}, "libc6"});
  EXPECT_TRUE(std::filesystem::exists(library.path())) << library.path();
  EXPECT_EQ(library.function<double(double)>("sqrt")(4), 2);
  EXPECT_FAILURE((void)library.function<void()>("no_such_function"), Exit::usage,
                 AllOf(HasSubstr("the mathematics library"), HasSubstr("no_such_function")));
}

TEST(Library, IsFoundInTheOrderOfNamedFolders) {
  const tests::ScratchFolder first, second;
  put_library(second, "libstrata-test-named.so.1");
  const Variable folders("STRATA_CUDA_LIBRARIES", first.path().string() + "::" + second.path().string() + ":");
  EXPECT_THAT(named_folders(), ElementsAre(first.path().string(), second.path().string()));
  const LibraryName name{"A test", {"libstrata-test-named.so.2", "libstrata-test-named.so.1"}, "it"};
  EXPECT_EQ(Library::open(name).path(), (second.path() / "libstrata-test-named.so.1").string());
}

TEST(Library, IsFoundInAToolkitOrAWheel) {
  const tests::ScratchFolder toolkit, environment;
  put_library(toolkit, "lib64/libstrata-test-toolkit.so.1");
  put_library(environment, "lib/python3.12/site-packages/nvidia/cublas/lib/libstrata-test-wheel.so.1");
  const Variable home("CUDA_HOME", toolkit.path().string()), venv("VIRTUAL_ENV", environment.path().string());
  EXPECT_THAT(usual_folders(), Contains((toolkit.path() / "lib64").string()));
  EXPECT_THAT(Library::open({"A test", {"libstrata-test-toolkit.so.1"}, "it"}).path(), HasSubstr("lib64"));
  EXPECT_THAT(Library::open({"A test", {"libstrata-test-wheel.so.1"}, "it"}).path(), HasSubstr("nvidia/cublas/lib"));
}

TEST(Library, AMissingOrDamagedOneIsReportedInOneSentence) {
  const tests::ScratchFolder folder;
  folder.write("libstrata-test-damaged.so.1", "no library");
  const Variable folders("STRATA_CUDA_LIBRARIES", folder.path().string());
  EXPECT_FAILURE(
      (void)Library::open({"A test", {"libstrata-test-missing.so.2", "libstrata-test-missing.so.1"}, "it-dev"}),
      Exit::usage,
      AllOf(HasSubstr("A test (libstrata-test-missing.so.2 or libstrata-test-missing.so.1) was not found"),
            HasSubstr("install it-dev"), HasSubstr("STRATA_CUDA_LIBRARIES")));
  EXPECT_FAILURE((void)Library::open({"A test", {"libstrata-test-damaged.so.1"}, "it"}), Exit::usage,
                 AllOf(HasSubstr("the loader refused"), HasSubstr("libstrata-test-damaged.so.1")));
}

TEST(Library, ReadsVersionNumbers) {
  EXPECT_EQ(library_version_text(130100), "13.1.0");
  EXPECT_EQ(library_version_text(91002), "9.10.2");
  EXPECT_EQ(library_version_text(22809), "2.28.9");
}

}  // namespace
}  // namespace strata::device::cuda
