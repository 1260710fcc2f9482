// How a run ends soon after a signal although a row takes long: the layers run aside (aside.h), and a row that has
// not ended by then is left, as if it had not been read. What the others have brought is complete but for the states
// of the layers, in which the row that was left is going on. For --save, which needs them, there is a copy of what
// was before the row.
#include <algorithm>
#include <chrono>

#include "aside.h"
#include "progress.h"
#include "regress_stream.h"
#include "ttr/memory.h"

namespace ttr::cli {
namespace {

constexpr double short_seconds = 0.02, long_seconds = 0.2;
constexpr std::int64_t unknown_rows = 64;

}  // namespace

// A guess, with the rows that are learned again in other units. Nobody knows what the first rows of a layer take.
double Stream::seconds_of_next_block(const Memory& memory) const {
  if (good_rows_ < unknown_rows) return std::max(row_seconds_, short_seconds);
  const bool again = memory.will_learn_again() || block_limit_ > 1;
  const std::int64_t rows = memory.rows() <= Units::most_rows && again ? memory.rows() : 0;
  return row_seconds_ * static_cast<double>(static_cast<std::int64_t>(block_limit_) + rows);
}

void Stream::keep_what_was(const Memory& memory) {
  if (options_.save.empty() || served_ || id_at_ > 0) return;
  double bytes = 0;
  for (std::size_t f = 0; f < forecasters_->layer_count(); ++f)
    bytes += 4 * static_cast<double>(memory.forecasters().state_bytes(f));
  const bool wanted = seconds_of_next_block(memory) >= long_seconds || (good_rows_ < unknown_rows && bytes < 64e6);
  if (wanted && bytes < free_memory().bytes) what_was_ = std::make_unique<Memory>(memory);
}

bool Stream::run_layers() {
  using Clock = std::chrono::steady_clock;
  if (touched_.empty()) return true;
  const auto run = [this] {
    const auto start = Clock::now();
    for (Memory* memory : touched_) memory->run();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    row_seconds_ = seconds / static_cast<double>(rows_.size());
  };
  const bool needs_copy = !options_.save.empty() && (id_at_ > 0 || !what_was_);
  if (served_ || needs_copy || seconds_of_next_block(*touched_.front()) < short_seconds) {
    run();
    return true;
  }
  describe_scores();
  return run_aside([this, run] {
    run();
    for (Memory* memory : touched_) memory->end_learning();
  });
}

void Stream::go_back() {
  left_ = true, states_whole_ = false;
  good_rows_ = good_before_, questions_ = questions_before_;
  for (auto& memory : memories_) {
    if (memory.get() != touched_.front() || !what_was_) continue;
    static_cast<void>(memory.release());  // the row goes on in it
    memory = std::move(what_was_), states_whole_ = true;
  }
  rows_.clear(), touched_.clear();
}

}  // namespace ttr::cli
