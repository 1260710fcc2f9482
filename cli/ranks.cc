#include "ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "ttr/model.h"
#include "ttr/status.h"

extern char** environ;

namespace ttr::cli {
namespace {

std::unique_ptr<Ranks>& of_program() {
  static std::unique_ptr<Ranks> all = std::make_unique<Ranks>();
  return all;
}

}  // namespace

void Ranks::gather(const void* mine, std::size_t bytes, void* all) { std::memcpy(all, mine, bytes); }
void Ranks::gather_pieces(const void* mine, std::span<const std::size_t> bytes, void* all) {
  if (bytes[0] > 0) std::memmove(all, mine, bytes[0]);
}
void Ranks::exchange(const void* mine, std::span<const std::size_t> bytes, void* all) {
  if (bytes[0] > 0) std::memmove(all, mine, bytes[0]);
}
std::unique_ptr<model::Pieces> Ranks::pieces(int) { return nullptr; }
void Ranks::wait() {
  const char mine = 0;
  std::vector<char> all(static_cast<std::size_t>(count()));
  gather(&mine, 1, all.data());
}

Ranks& ranks() { return *of_program(); }
void set_ranks(std::unique_ptr<Ranks> all) { of_program() = std::move(all); }

namespace {

// How many ranks there are; 1: this process alone. 0: they do not say.
int ranks_started() {
  const auto number = [](const char* name) {
    const char* text = std::getenv(name);
    return text ? std::max(0, std::atoi(text)) : -1;
  };
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const int count = number(name); count >= 0) return count;
  if (!std::getenv("PMIX_RANK")) return 1;
  return std::max(0, number("SLURM_STEP_NUM_TASKS"));  // srun says it there
}

}  // namespace

bool started_as_rank() { return ranks_started() != 1; }

void forget_ranks() {
  std::vector<std::string> names;
  for (char** one = environ; *one; ++one)
    for (const char* begin : {"OMPI_", "PMIX_", "PMI_"})
      if (std::strncmp(*one, begin, std::strlen(begin)) == 0) names.emplace_back(*one, std::strcspn(*one, "="));
  for (const std::string& name : names) unsetenv(name.c_str());
}

const MpiProgram*& mpi_program() {
  static const MpiProgram* program = nullptr;
  return program;
}

void start_ranks(char** argv, bool needed) {
  if (!needed && !started_as_rank()) return;
  if (!mpi_program())
    become_ttr_mpi(argv, needed && !started_as_rank() ? "this is done with MPI"
                         : ranks_started() > 1        ? "several ranks of MPI have been started"
                                                      : "this process was started as a rank of MPI (PMIX_RANK)");
  mpi_program()->start();
}

int end_ranks(int code, bool good) {
  if (mpi_program()) mpi_program()->end(good);
  return code;
}

void become_ttr_mpi(char** argv, const std::string& why) {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::string other = (self.parent_path() / "ttr-mpi").string();
  if (!failed) execv(other.c_str(), argv);
  throw Error(why + ", and this ttr has no MPI: '" + other + "' cannot be run (" + std::strerror(errno) +
                  "). Build it where MPI is found (Debian: libopenmpi-dev openmpi-bin)",
              "mpirun");
}

}  // namespace ttr::cli
