#include "bench_child.h"

#include <fmt/core.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "allocation_count.h"
#include "progress.h"

namespace ttr::cli {
namespace {

struct Message {  // through a pipe, as bytes
  bool right;
  double seconds, peak, footprint;
  char why[240];
};

// A line of /proc/self/status such as "VmHWM:  1234 kB", in bytes; -1 if there is none.
double status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name)) return 1024 * std::atof(line.c_str() + name.size());
  return -1;
}

double life_peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

Message measure(const BenchCase& spec, int runs, bool check) {
  Message m{};
  CaseRun run(spec);
#ifdef __GLIBC__
  malloc_trim(0);  // what drawing the inputs took is not the layer's
#endif
  const double before = status_bytes("VmRSS:");
  const bool reset = before >= 0 && (std::ofstream("/proc/self/clear_refs") << "5" << std::flush).good();
  run.once();
  const double peak = reset ? status_bytes("VmHWM:") : life_peak();
  m.peak = std::max(0.0, peak - std::max(before, 0.0));
  const Footprint bytes = run.plan().footprint(spec.time, spec.form);
  m.footprint = static_cast<double>(
      bytes.state + (spec.pass == Pass::both ? std::max(bytes.workspace, bytes.backward) : bytes.workspace));
  std::vector<double> seconds;
  double total = 0;
  for (int r = 0; r < runs && (r == 0 || total < 4) && !interrupted(); ++r) {
    const double taken = run.timed();
    total += taken;
    seconds.push_back(taken / run.tokens_per_run() * static_cast<double>(spec.time));
  }
  std::sort(seconds.begin(), seconds.end());
  m.seconds = seconds.empty() ? 0 : seconds[seconds.size() / 2];
  m.right = true;
  if (check) {
    const CaseCheck result = check_case(run);
    m.right = result.right;
    std::snprintf(m.why, sizeof m.why, "%s", result.right ? "" : result.what.c_str());
  }
  return m;
}

}  // namespace

ChildResult run_in_child(const BenchCase& spec, int runs, bool check) {
  int ends[2];
  if (pipe(ends) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  std::fflush(stdout), std::fflush(stderr);
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]), close(ends[1]);
    throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)));
  }
  if (child == 0) {
    close(ends[0]);
    Message m{};
    try {
      m = measure(spec, runs, check);
    } catch (const std::bad_alloc&) {
      std::snprintf(m.why, sizeof m.why, "%s", no_memory_in_words().c_str());
    } catch (const std::exception& error) {
      std::snprintf(m.why, sizeof m.why, "%s", error.what());
    }
    const ssize_t written = write(ends[1], &m, sizeof m);
    _exit(written == static_cast<ssize_t>(sizeof m) ? 0 : 1);
  }
  close(ends[1]);
  Message m{};
  std::size_t got = 0;
  pollfd waits[2] = {{ends[0], POLLIN, 0}, {interrupt_descriptor(), POLLIN, 0}};
  while (got < sizeof m) {
    if (interrupted()) ::kill(child, SIGKILL);  // it has nothing to lose
    else if (::poll(waits, waits[1].fd >= 0 ? 2 : 1, -1) < 0 || waits[0].revents == 0) continue;
    const ssize_t n = read(ends[0], reinterpret_cast<char*>(&m) + got, sizeof m - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ChildResult result;
  if (got < sizeof m) {
    result.why = WIFSIGNALED(status)
                     ? fmt::format("the process was ended by signal {}; it may have needed more memory than there is",
                                   WTERMSIG(status))
                     : "the process ended without a result";
    return result;
  }
  result.right = m.right, result.seconds = m.seconds, result.peak_bytes = m.peak;
  result.footprint_bytes = m.footprint, result.why = m.why;
  return result;
}

double tensor_bytes(const BenchCase& spec) {
  Options options;
  options.type = spec.type;
  const Plan p = plan(spec.layer, {1, spec.heads, 0, spec.key_dim, spec.value_dim}, options);
  double numbers = 0;
  for (const InputInfo& info : p.inputs()) numbers += static_cast<double>(count(p, info.shape, spec.time));
  for (const InputInfo& info : p.outputs()) numbers += static_cast<double>(count(p, info.shape, spec.time));
  return numbers * static_cast<double>(size_of(spec.type)) * (spec.pass == Pass::both ? 2 : 1);
}

}  // namespace ttr::cli
