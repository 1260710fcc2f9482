// The list of layers (layers.def), and behind them the operations.
#include "zoo/zoo.h"

namespace ttr::zoo {

std::span<const Declaration> declarations() {
  static const std::vector<Declaration> all = [] {
#define TTR_LAYER(name) name(),
    std::vector<Declaration> list = {
#include "zoo/layers.def"
    };
#undef TTR_LAYER
    for (Declaration& d : operations()) list.push_back(std::move(d));
    return list;
  }();
  return all;
}

}  // namespace ttr::zoo
