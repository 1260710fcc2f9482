// The list of families, and who claims a design: the first in the list that does.
#include "families/families.h"

#include "recipe/design.h"

namespace ttr::families {

std::span<const Family* const> list() noexcept {
#define TTR_FAMILY(name) &name##_family,
  static constexpr const Family* all[] = {
#include "families/families.def"
  };
#undef TTR_FAMILY
  return all;
}

const Family& claimed_by(const Design& design, bool causal) {
  for (const Family* family : list())
    if (family->claim && family->claim(design, causal)) return *family;
  return literal_family;
}

}  // namespace ttr::families
