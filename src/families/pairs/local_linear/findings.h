// What the blocks of a head tell later ones about the solve.
//
// Blocks come in companies of eight. The first of a company tries everything; the others leave out what was of no use to the
// first of the company before theirs (in the first company: of their own). One attempt in eight is cheap where it stays of no
// use, and notices when the keys have changed. What a block does follows from its number and the numbers of the call, so
// blocks may go to any workers; one that asks waits for a block with a smaller number alone (team.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>

#include "families/common/scratch.h"
#include "families/common/team.h"
#include "families/pairs/local_linear/block.h"

namespace ttr::families::local_linear {

/// Whether conjugate gradients come to an end, and whether it is worth to start them at the query.
struct Finding {
  bool iterate = true, query = true;
};

class Findings {
 public:
  /// Of the heads of a key head, for sequences of at most `longest` tokens.
  Findings(int group, Size longest, Arena& arena)
      : companies(longest / (company * tile_size) + 1), heads(group), list(arena.take<Entry>(group * companies)) {}

  void forget() {
    for (Size i = 0; i < heads * companies; ++i) new (list + i) Entry;
  }
  static bool leads(Size block) { return block % company == 0; }
  Finding before(int head, Size block) const {
    if (leads(block)) return {};
    const Entry& entry = list[head * companies + std::max<Size>(block / company, 1) - 1];
    entry.known.wait(1);
    return entry.finding;
  }
  /// To be called for every block that leads, when its solve is done.
  void tell(int head, Size block, Finding finding) {
    Entry& entry = list[head * companies + block / company];
    entry.finding = finding;
    entry.known.reach(1);
  }

 private:
  static constexpr Size company = 8;
  struct Entry {
    Finding finding;
    Progress known;
  };
  Size companies;
  int heads;
  Entry* list;
};

}  // namespace ttr::families::local_linear
