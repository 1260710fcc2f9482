// The list of layers (layers.def), and behind them the operations.
#include "zoo/zoo.h"

namespace ttr::zoo {

std::span<const Declaration> declarations() {
  static const std::vector<Declaration> all = [] {
#define TTR_LAYER(name) name(),
    std::vector<Declaration> list = {
#ifdef TTR_SLIM
#include "slim/layers.def"
#else
#include "zoo/layers.def"
#endif
    };
#undef TTR_LAYER
#ifndef TTR_WITHOUT_OPERATIONS
    for (Declaration& d : operations()) list.push_back(std::move(d));
#endif
    return list;
  }();
  return all;
}

std::span<const std::string_view> left_out() {
  static constexpr std::string_view names[] = {
#ifdef TTR_SLIM
#include "slim/left_out.def"
#endif
      ""};
  return std::span(names).first(std::size(names) - 1);
}

}  // namespace ttr::zoo
