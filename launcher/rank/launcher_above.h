#pragma once
#include <string>

namespace strata::launcher {

// What mpirun or srun sets in the environment of a rank may outlive it: in a shell that a rank has started, in a copied
// environment. Says which variable makes this process a rank though no program that starts ranks is among its
// ancestors, "OMPI_COMM_WORLD_RANK=3"; empty if one is, or if nothing makes it a rank.
std::string left_over_rank();

// Whether a program of this name (as in /proc/PID/comm) starts ranks, itself or on a node.
bool starts_ranks(const std::string& name);

}  // namespace strata::launcher
