// The exclusive scan of a Channel: of x_0, .. x_(P-1), rank r gets x_0 x_1 .. x_(r-1).
//
//   first          rank r sends x_r to r + 1, and has y_r = x_(r-1)
//   step 1, 2, 4,  .. below P - 1: rank r > 0 sends y_r to r + step, and composes what comes from r - step > 0 with its own:
//                  y_r = y_(r-step) y_r, which are then twice as many x
//
// These are 1 + ceil(log2(P - 1)) rounds of at most one message to a rank, and ceil(log2(P - 1)) compositions. Scans without
// the first round (a rank keeps what is before it and what is before it and itself) have ceil(log2 P) rounds of two compositions
// each, and where elements are matrices a composition takes longer than a message. MPI_Exscan would leave it to the
// library: that of Open MPI 4.1 is a chain of P - 1 compositions (docs/scaling.md).
//
// Who composes what follows from P alone, so that the bits are the same in every run. Backwards rank P - 1 is the first.
#include "mpi/channel.h"

namespace ttr::mpi {

Exscan::~Exscan() {
  if (channel_) std::erase(channel_->scans_, this);
}

std::unique_ptr<Exscan> Channel::begin_exscan(std::vector<std::byte> mine, Exscan::Compose compose, bool backwards,
                                              int tag) {
  auto scan = std::make_unique<Exscan>();
  scan->channel_ = this, scan->bytes_ = mine.size(), scan->mine_ = std::move(mine);
  scan->compose_ = std::move(compose), scan->backwards_ = backwards, scan->tag_ = tag;
  scans_.push_back(scan.get());
  advance(*scan);
  return scan;
}

bool Channel::advance(Exscan& scan) {
  const int place = place_in(scan), sign = scan.backwards_ ? -1 : 1;
  for (;;) {
    const bool first = scan.step_ == 0;
    const int step = first ? 1 : scan.step_;
    if (!first && (place == 0 || step >= ranks_ - 1)) return true;
    const bool receives = first ? place > 0 : place > step;
    if (!scan.expects_) {
      if (receives) scan.next_ = expect(scan.bytes_, rank_ - sign * step, scan.tag_);
      if (place + step < ranks_) send(first ? std::move(scan.mine_) : scan.before_, rank_ + sign * step, scan.tag_);
      scan.expects_ = true;
    }
    if (receives) {
      if (!arrived(scan.next_)) return false;
      std::vector<std::byte> further = std::move(*scan.next_.bytes_);
      scan.next_ = {};
      if (first) {
        scan.before_ = std::move(further);
      } else {
        const Stopwatch stopwatch(counts.composing);
        ++counts.compositions;
        scan.compose_(further.data(), scan.before_.data());
      }
    }
    scan.step_ = first ? 1 : 2 * step, scan.expects_ = false;
  }
}

void Channel::advance_all() {
  for (Exscan* scan : scans_) advance(*scan);
}

std::vector<std::byte> Channel::end_exscan(Exscan& scan) {
  wait_until([&] { return advance(scan); },
             [&] { return "the map of pieces from rank " + std::to_string(scan.next_.from_); }, &counts.waiting);
  std::erase(scans_, &scan);
  return std::move(scan.before_);
}

}  // namespace ttr::mpi
