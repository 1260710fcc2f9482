// How many features a map may make of a key.
#pragma once

#include <cstddef>
#include <string>

#include "ttr/status.h"

namespace ttr::zoo {

/// As the extent of an axis. Throws Error where there are more than kernels count in 32 bits.
inline int features_that_fit(std::ptrdiff_t count) {
  constexpr std::ptrdiff_t most = 1 << 26;
  if (count >= 0 && count <= most) return static_cast<int>(count);
  throw Error("the feature map makes " + std::to_string(count) + " features of a key, and a plan takes " +
                  std::to_string(most) + "; take fewer key channels or a lower degree",
              "shape.key_dim");
}

}  // namespace ttr::zoo
