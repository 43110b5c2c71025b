#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "comm/agreement.h"
#include "comm/communicator.h"
#include "comm/mpi/mpi.h"
#include "comm/mpi/start.h"

namespace strata::comm {
namespace {

// The launcher that started this process, and the number of ranks that it started; ranks == 0 without a launcher.
struct Launch {
  const char* launcher = "";
  int ranks = 0, rank = 0;
};

Launch find_launch() {
  const auto number = [](const char* name) {
    const char* text = std::getenv(name);
    return text ? std::atoi(text) : 0;
  };
  if (const int ranks = number("OMPI_COMM_WORLD_SIZE")) return {"mpirun", ranks, number("OMPI_COMM_WORLD_RANK")};
  // SLURM_PROCID marks a job step. SLURM_NTASKS is also set in a batch script, whose processes are not ranks.
  if (std::getenv("SLURM_PROCID"))
    if (const int ranks = number("SLURM_STEP_NUM_TASKS"); ranks > 1) return {"srun", ranks, number("SLURM_PROCID")};
  if (std::getenv("PMI_RANK"))
    if (const int ranks = number("PMI_SIZE"); ranks > 1) return {"a PMI launcher", ranks, number("PMI_RANK")};
  // A job may set WORLD_SIZE for other programs. torchrun and Accelerate set all of these variables for each process.
  if (std::getenv("RANK") && std::getenv("LOCAL_RANK") && std::getenv("MASTER_ADDR"))
    if (const int ranks = number("WORLD_SIZE"); ranks > 1) return {"torchrun", ranks, number("RANK")};
  return {};
}

// Sets defaults of Open MPI's TCP. The user's variables and --mca take precedence.
// With one connection per pair of ranks, data that waits for buffer space in one direction blocks the other direction:
// at 2 Gbit/s, two ranks that send to each other were twice as fast with two connections. Connections are file
// descriptors, often limited to 1,024 per process, so large runs keep one.
// A message above the eager limit (64 KiB) begins with a handshake, which queues after the other data of its
// connection. Our pieces are sent without one; messages.cc bounds how many of them MPI buffers.
void set_tcp_defaults(int ranks) {
  constexpr int kMost = 256;
  if (ranks <= kMost) (void)setenv("OMPI_MCA_btl_tcp_links", "2", 0);
  const std::string limit = std::to_string(kMessagePiece + 1024);  // with room for Open MPI's header
  (void)setenv("OMPI_MCA_btl_tcp_eager_limit", limit.c_str(), 0);
  (void)setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", limit.c_str(), 0);
}

// Without this check, MPI_Init would end the process itself, with advice on how to build Slurm.
void require_pmi(const Launch& launch) {
  if (std::string_view(launch.launcher) != "srun") return;
  for (const char* name : {"PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_FD"})
    if (std::getenv(name)) return;
  throw AgreedError(Exit::usage,
                    fmt::format("srun started {} ranks without PMIx, so MPI cannot connect them: start them with srun "
                                "--mpi=pmix or strata launch",
                                launch.ranks));
}

std::unique_ptr<World> connect_mpi(const Launch& launch, Transport transport) {
  require_pmi(launch);
  set_tcp_defaults(launch.ranks);
  std::unique_ptr<MpiSession> session;
  {
    const StartWatch watch(launch.rank, launch.ranks);
    session = std::make_unique<MpiSession>();
  }
  // Otherwise each rank would train alone, and all would write the same checkpoints.
  if (launch.ranks > 1 && session->size == 1)
    throw AgreedError(Exit::usage,
                      fmt::format("{} started {} ranks, but MPI sees only this one: start with strata launch, with the "
                                  "mpirun of the Open MPI that strata is linked with, or with srun --mpi=pmix",
                                  launch.launcher, launch.ranks));
  // Ranks whose recipes request different transports must still connect to find that out.
  const int asked = static_cast<int>(transport), both[] = {asked, -asked};
  int most[2] = {};
  STRATA_MPI(MPI_Allreduce(both, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
  if (most[0] != -most[1]) return mpi_messages_world(std::move(session), "the ranks request different transports");
  if (transport == Transport::messages) return mpi_messages_world(std::move(session), "");
  std::string why_not;
  if (auto world = mpi_shared_memory_world(session, why_not)) return world;
  if (transport == Transport::shared_memory)
    throw AgreedError(Exit::usage, fmt::format("the ranks cannot share memory: {}; do not set comm.transport, or "
                                               "start them on one node",
                                               why_not));
  return mpi_messages_world(std::move(session), why_not);
}

}  // namespace

void require_possible(Backend backend) {
  const Launch launch = find_launch();
  if (backend == Backend::solo && launch.ranks > 1)
    fail(Exit::usage,
         "comm.backend = solo, but {} started {} ranks that would each train alone and overwrite each other's files: "
         "use comm.backend = auto, or start one rank",
         launch.launcher, launch.ranks);
}

int launched_rank() {
  return find_launch().rank;
}

int launched_ranks() {
  return find_launch().ranks;
}

std::unique_ptr<World> connect(Backend backend, Transport transport) {
  require_possible(backend);
  const Launch launch = find_launch();
  if (backend == Backend::solo || (backend != Backend::mpi && launch.ranks == 0)) return solo_world();
  return connect_mpi(launch, transport);
}

}  // namespace strata::comm
