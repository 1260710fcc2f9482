// The list of layers: one line each, in the order of the documentation.
#include "zoo/zoo.h"

namespace ttr::zoo {

std::span<const Declaration> declarations() {
  static const std::vector<Declaration> all = [] {
    std::vector<Declaration> list = {
        linear_attention(),
        normalised_linear_attention(),
        retnet(),
        lightning_attention(),
        simple_gla(),
        mamba_2(),
        gla(),
        hgrn_2(),
        rwkv_6(),
        deltanet(),
        gated_deltanet(),
        nlms(),
        longhorn(),
        leaky_lms(),
        decoupled_lms(),
        efla(),
        kaczmarz(),
        kda(),
        gdn_2(),
        comba(),
        delta_product(),
        gated_delta_product(),
        dplr(),
        iplr(),
        rwkv_7(),
        affine_projection(),
        rls(),
        softmax_attention(),
        local_linear_attention(),
        kernel_regression(),
    };
    for (Declaration& d : operations()) list.push_back(std::move(d));
    return list;
  }();
  return all;
}

}  // namespace ttr::zoo
