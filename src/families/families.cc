// The list of families, and who claims a design: the first in the list that does.
#include "families/families.h"

#include "recipe/design.h"
#include "ttr/status.h"

namespace ttr::families {

std::span<const Family* const> list() noexcept {
#define TTR_FAMILY(name) &name##_family,
  static constexpr const Family* all[] = {
#ifdef TTR_SLIM  // CMake chose some of them (cmake/slim.cmake)
#include "slim/families.def"
#else
#include "families/families.def"
#endif
  };
#undef TTR_FAMILY
  return all;
}

const Family& claimed_by(const Design& design, bool causal) {
  for (const Family* family : list())
    if (family->claim && family->claim(design, causal)) return *family;
  return literal();
}

const Family& literal() {
#ifdef TTR_WITHOUT_ORACLE
  throw Error(
      "no kernel of this build of ttr runs this, and it was configured without the literal solver, which runs "
      "everything; "
      "add -DTTR_ORACLE=ON, or leave -DTTR_LAYERS away to have all kernels",
      "kernel");
#else
  return literal_family;
#endif
}

}  // namespace ttr::families
