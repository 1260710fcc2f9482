// What surrounds each layer in the model it was published with, as settings of a block (docs/model.md). Sources: the
// papers of the layers (`ttr layers NAME`) and the layers of flash-linear-attention. A layer that is not here gets the
// first row; what its inputs need follows from their ranges.
//
// Traps. The gate of GLA, HGRN and their relatives is log sigmoid(x) / 16, that of Mamba-2 and Gated DeltaNet
// -exp(A_log) softplus(x + dt_bias). Mamba-2 gates before its norm, the others after it. B, C and the steps of Mamba-1
// read the convolved x, not the hidden state. RetNet and softmax attention turn q and k; layers with a convolution do
// not. Not reproduced: the data-dependent token shift of RWKV-6 (RWKV-7's constant one is `shift=yes`), the value
// residual of RWKV-7, the SwiGLU on the input of HGRN.
#include <string>
#include <utility>

#include "model/mixer.h"

namespace ttr::model {
namespace {

struct Row {
  const char* layers;  // separated by blanks
  const char* settings;
};

constexpr Row published_rows[] = {
    {"", "conv=4, out_norm=head"},
    {"linear-attention", "out_norm=head"},
    {"normalised-linear-attention based rebased dpfp t2r hedgehog performer rfa dijiang gated-rfa",
     "map.g=logsigmoid"},
    {"cosformer", "map.q=relu, map.k=relu"},
    {"retnet", "rotary=yes, out_norm=head, out_gate=silu"},
    {"lightning-attention", "act=silu, out_norm=whole, out_gate=sigmoid"},
    {"simple-gla", "conv=4, map.g=logsigmoid/16, out_norm=head, out_gate=silu"},
    {"mamba-2", "conv=4, conv_bias=yes, out_norm=whole, out_gate=silu, gate_first=yes"},
    {"mamba-3", "map.q=rms, map.k=rms, map.adt=decay"},
    {"log-linear-attention", "conv=4, out_norm=head, out_gate=silu"},
    {"mlstm", "conv=4, conv_on=q k, bias.i=-10, bias.f=3:6, out_norm=head, out_gate=sigmoid"},
    {"gla", "map.gk=logsigmoid/16, rank.gk=16, map.gv=logsigmoid/16, rank.gv=16, out_norm=head, out_gate=silu"},
    {"hgrn-2", "out_norm=whole"},
    {"gateloop", "map.la=logsigmoid, out_norm=head, out_gate=silu"},
    {"rwkv-4", "shift=yes, out_gate=sigmoid"},
    {"rwkv-6", "shift=yes, map.w=negexp, rank.w=16, inner.w=tanh, bias.w=-6:-1, out_norm=head, out_gate=silu"},
    {"rwkv-7",
     "shift=yes, map.w=negsigmoid*0.6065306597126334, rank.w=16, inner.w=tanh, bias.w=-6:-1, rank.a=16, bias.a=0, "
     "out_norm=head, out_gate=sigmoid, out_rank=16"},
    {"gated-slot-attention", "act=silu, map.g=logsigmoid/8, out_norm=whole, out_gate=silu"},
    {"abc", "out_norm=head, out_gate=silu"},
    {"mamba-1", "conv=4, conv_bias=yes, conv_on=u, from.B=u, from.C=u, from.delta=u, rank.delta=4, bias.delta=no"},
    {"longhorn-shipped", "conv=4, conv_bias=yes, conv_on=x, from.q=x, from.k=x, from.beta_raw=x"},
    {"hgrn", "map.g=logsigmoid, out_norm=whole, out_gate=silu"},
    {"lru", "out_norm=none"},
    {"rg-lru", "conv=4, conv_bias=yes, conv_on=x, conv_act=none, from.r=x, from.i=x, out_gate=silu"},
    {"gated-deltanet gated-deltaproduct kaczmarz-attention comba preconditioned-deltanet momentum-deltanet gated-oja "
     "gated-kalmanet moneta yaad omega-rule",
     "conv=4, out_norm=head, out_gate=silu"},
    {"kda preconditioned-kda gdn-2", "conv=4, rank.g=16, out_norm=head, out_gate=sigmoid, out_rank=16"},
    {"softmax-attention deltaformer unnormalised-softmax local-linear-attention parallax kernel-regression skyformer "
     "soft "
     "intention sigma-intention",
     "rotary=yes"},
    {"forgetting-attention", "map.g=logsigmoid"},
    {"path-attention", "map.g=logsigmoid, range.beta=2"},
    {"ttt-linear ttt-mlp ttt-linear-fla", "out_norm=whole, out_gate=silu"},
    {"titans-mag titans-mal titans-mac", "conv=4"},
    {"lact", "act=silu, out_norm=head"},
};

}  // namespace

std::vector<std::string> published_layers() {
  std::vector<std::string> names;
  for (const Row& row : published_rows) {
    std::string name;
    for (const char* c = row.layers;; ++c) {
      if (*c && *c != ' ') name += *c;
      else if (!name.empty()) names.push_back(std::exchange(name, {}));
      if (!*c) break;
    }
  }
  return names;
}

std::string published_settings(std::string_view layer) {
  const std::string wanted = " " + std::string(layer) + " ";
  for (const Row& row : published_rows)
    if (*row.layers && (" " + std::string(row.layers) + " ").find(wanted) != std::string::npos) return row.settings;
  return published_rows[0].settings;
}

}  // namespace ttr::model
