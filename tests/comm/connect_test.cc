#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "comm/communicator.h"

namespace strata::comm {
namespace {

// Every test begins and ends without launchers' variables.
class Connect : public testing::Test {
 protected:
  Connect() {
    for (const char* name : kNames) unsetenv(name);
  }
  ~Connect() override {
    for (const char* name : kNames) unsetenv(name);
  }
  static constexpr const char* kNames[] = {
      "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "PMI_RANK", "PMI_SIZE", "RANK",
      "LOCAL_RANK",           "WORLD_SIZE",   "MASTER_ADDR"};
};

void expect_usage_error(Backend backend, const char* words) {
  try {
    connect(backend, Transport::automatic);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    EXPECT_THAT(e.what(), testing::HasSubstr(words));
  }
}

TEST_F(Connect, IsSoloWithoutALauncher) {
  EXPECT_EQ(connect(Backend::automatic, Transport::automatic)->describe(), "one rank without mpirun");
  EXPECT_EQ(connect(Backend::solo, Transport::messages)->describe(), "one rank without mpirun");
}

TEST_F(Connect, ASlurmBatchScriptIsNotARank) {
  setenv("SLURM_PROCID", "0", 1);
  setenv("SLURM_NTASKS", "4", 1);
  EXPECT_EQ(connect(Backend::automatic, Transport::automatic)->describe(), "one rank without mpirun");
  unsetenv("SLURM_NTASKS");
}

// torchrun's processes would each train alone. A job that sets WORLD_SIZE for other programs is no launcher.
TEST_F(Connect, ProcessesOfTorchrunAreNotRanks) {
  for (const char* name : {"RANK", "LOCAL_RANK", "MASTER_ADDR"}) setenv(name, "0", 1);
  EXPECT_EQ(connect(Backend::automatic, Transport::automatic)->describe(), "one rank without mpirun");
  setenv("WORLD_SIZE", "2", 1);
  expect_usage_error(Backend::solo, "torchrun started 2 ranks");
}

TEST_F(Connect, SoloAmongSeveralRanksIsRefused) {
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  expect_usage_error(Backend::solo, "mpirun started 4 ranks");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  setenv("SLURM_PROCID", "0", 1);
  setenv("SLURM_STEP_NUM_TASKS", "2", 1);
  expect_usage_error(Backend::solo, "srun started 2 ranks");
}

// MPI_Init would end the process itself, with advice on how to build Slurm.
TEST_F(Connect, SrunWithoutPmixIsRefused) {
  setenv("SLURM_PROCID", "0", 1);
  setenv("SLURM_STEP_NUM_TASKS", "2", 1);
  expect_usage_error(Backend::automatic, "srun --mpi=pmix");
}

}  // namespace
}  // namespace strata::comm
