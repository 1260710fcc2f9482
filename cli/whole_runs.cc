#include "whole_runs.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "progress.h"
#include "ttr/status.h"

namespace ttr::cli {

void run_whole(const Plan& plan, std::string_view label, const std::string& where, const Inputs& in,
               const Outputs& out, const Buffer& state, const Buffer& work) {
  Status status = plan.reset({state.data(), state.size()});
  if (status == Status::ok) status = plan.forward(in, {state.data(), state.size()}, out, {work.data(), work.size()});
  if (status == Status::ok) return;
  std::string reason = plan.diagnose(in, {state.data(), state.size()}, out, {work.data(), work.size()});
  if (reason.empty()) reason = to_string(status);
  throw Error(fmt::format("the layer '{}' cannot run: {}", label, reason), where);
}

bool in_parallel(int count, int threads, const std::function<void(int)>& work,
                 const std::function<void(int)>& after) {
  std::atomic<int> next{0}, done{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto loop = [&](bool reports) {
    for (int task; interrupted() == 0 && (task = next++) < count;) {
      try {
        work(task);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
      ++done;
      if (reports) after(done);
    }
  };
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < std::min(std::max(threads, 1), count); ++i) others.emplace_back(loop, false);
    loop(true);
  }
  if (failure) std::rethrow_exception(failure);
  return interrupted() == 0;
}

Statistic statistic(const std::vector<double>& per_run) {
  const double n = static_cast<double>(per_run.size());
  if (per_run.empty()) return {};
  Statistic out{0, 0};
  for (double x : per_run) out.mean += x / n;
  for (double x : per_run) out.error += (x - out.mean) * (x - out.mean);
  out.error = n > 1 ? std::sqrt(out.error / (n - 1) / n) : std::numeric_limits<double>::quiet_NaN();
  return out;
}

}  // namespace ttr::cli
