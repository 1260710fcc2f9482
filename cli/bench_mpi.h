// `ttr bench mpi`, of ttr-mpi alone.
#pragma once

#include "bench.h"

namespace ttr::cli {

int run_bench_mpi(const MpiBenchOptions&);

}  // namespace ttr::cli
