// The pieces of sequences that the ranks of a communicator hold, for ttr-mpi alone: plans by ttr::mpi::Split.
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <functional>
#include <memory>

#include "ttr/model.h"

namespace ttr::cli {

/// Takes the communicator over. `complete` waits for a request as the program does, which notices ranks that have ended;
/// `idle`, if there is one, is called with the seconds that a plan waits, and has the time limit of the program.
std::unique_ptr<model::Pieces> make_pieces(MPI_Comm, std::function<void(MPI_Request&)> complete,
                                           std::function<void(double)> idle = {});

}  // namespace ttr::cli
