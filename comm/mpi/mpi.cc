#include "comm/mpi/mpi.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "comm/mpi/start.h"

namespace strata::comm {

void mpi_failed(const char* call, int code) {
  char text[MPI_MAX_ERROR_STRING];
  int size = 0;
  if (MPI_Error_string(code, text, &size) != MPI_SUCCESS) size = 0;
  const std::string_view name(call);
  fail(Exit::failed, "{} failed: {}", name.substr(0, name.find('(')),
       std::string_view(text, static_cast<std::size_t>(size)));
}

namespace {

// The node of each rank. `own`: the ranks on this rank's node. Collective.
std::vector<int> nodes_of(const std::vector<Process>& own, int size) {
  int first = own[0].rank;
  for (const Process& process : own) first = std::min(first, process.rank);
  std::vector<int> firsts(static_cast<std::size_t>(size)), nodes;
  STRATA_MPI(MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, MPI_COMM_WORLD));
  std::vector<int> known;  // ascending, because a node's lowest rank comes first
  for (const int lowest : firsts) {
    if (std::ranges::find(known, lowest) == known.end()) known.push_back(lowest);
    nodes.push_back(static_cast<int>(std::ranges::find(known, lowest) - known.begin()));
  }
  return nodes;
}

}  // namespace

MpiSession::MpiSession() {
  int initialized = 0;
  STRATA_MPI(MPI_Initialized(&initialized));
  if (initialized) fail(Exit::usage, "MPI is already initialised: a process can connect to its world only once");
  int provided = MPI_THREAD_SINGLE;
  STRATA_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
  try {
    STRATA_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    STRATA_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    STRATA_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
    // Every lane makes its own MPI calls.
    if (provided < MPI_THREAD_MULTIPLE)
      fail(Exit::usage, "this MPI was built without MPI_THREAD_MULTIPLE: use an Open MPI that has it");
    MPI_Comm node = MPI_COMM_NULL;
    STRATA_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    STRATA_MPI(MPI_Comm_rank(node, &node_rank));
    STRATA_MPI(MPI_Comm_size(node, &node_size));
    const Process self = Process::self(rank);
    std::vector<Process> all(static_cast<std::size_t>(node_size));
    STRATA_MPI(MPI_Allgather(&self, sizeof self, MPI_BYTE, all.data(), sizeof self, MPI_BYTE, node));
    STRATA_MPI(MPI_Comm_free(&node));
    nodes = nodes_of(all, size);
    if (node_rank == 0) (void)remove_stale_files();
    // A process that appears dead to this rank at this point is in another container.
    for (const Process& process : all)
      if (process.rank != rank && process.alive()) neighbours.push_back(process);
  } catch (...) {
    // The destructor does not run if the constructor throws. Every rank that gets here fails in the same way.
    MPI_Finalize();
    throw;
  }
}

MpiSession::~MpiSession() {
  if (!abandoned_) MPI_Finalize();
}

}  // namespace strata::comm
