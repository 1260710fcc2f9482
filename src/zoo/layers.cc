// The list of layers: one line each, in the order of the documentation.
#include "zoo/zoo.h"

namespace ttr::zoo {

std::span<const Declaration> declarations() {
  static const std::vector<Declaration> all = [] {
    std::vector<Declaration> list = {
        // equal weights, one step: feature maps
        linear_attention(),
        normalised_linear_attention(),
        based(),
        rebased(),
        dpfp(),
        cosformer(),
        t2r(),
        hedgehog(),
        performer(),
        rfa(),
        gated_rfa(),
        dijiang(),
        // decayed
        retnet(),
        lightning_attention(),
        simple_gla(),
        mamba_2(),
        mamba_3(),
        log_linear_attention(),
        mlstm(),
        gla(),
        hgrn_2(),
        gateloop(),
        rwkv_4(),
        rwkv_6(),
        gated_slot_attention(),
        bounded_memory(),
        // elementwise states
        mamba_1(),
        hgrn(),
        lru(),
        rg_lru(),
        longhorn_shipped(),
        // the delta rule
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
        preconditioned_deltanet(),
        preconditioned_kda(),
        momentum_deltanet(),
        gated_oja(),
        delta_product(),
        gated_delta_product(),
        dplr(),
        iplr(),
        rwkv_7(),
        affine_projection(),
        // exact and nonparametric
        rls(),
        window_rls(),
        mesanet(),
        gated_kalmanet(),
        kalman(),
        softmax_attention(),
        forgetting_attention(),
        path_attention(),
        deltaformer(),
        unnormalised_softmax(),
        skyformer(),
        soft(),
        intention(),
        sigma_intention(),
        local_linear_attention(),
        parallax(),
        kernel_regression(),
        // small networks trained on the way
        ttt_linear(),
        ttt_mlp(),
        ttt_linear_fla(),
        titans(),
        titans_pytorch(),
        titans_mag(),
        titans_mal(),
        titans_mac(),
        lact(),
        moneta(),
        yaad(),
        omega_rule(),
    };
    for (Declaration& d : operations()) list.push_back(std::move(d));
    return list;
  }();
  return all;
}

}  // namespace ttr::zoo
