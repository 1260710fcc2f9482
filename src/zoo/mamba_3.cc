// Mamba-3 (SISO): Mamba-2 with a trapezoidal write and a data-dependent rotation of queries and keys.
//
//   phi_t = phi_{t-1} + pi tanh(angles_t) dt_t  (mod 2 pi) ;   q~, k~ = q + q_bias, k + k_bias turned by phi_t
//   S_t = e^{adt_t} S_{t-1} + (1-lam_t) dt_t e^{adt_t} k~_{t-1} v_{t-1}' + lam_t dt_t k~_t v_t' ,  lam = sigmoid(trap)
//   o_t = (S_t' q~_t + D v_t) * silu(z_t)
//
// q, k [B,T,G,K], v, z [B,T,H,V], adt, dt, trap [B,T,H], biases [H,K], angles [B,T,H,R] for the first R adjacent
// pairs of channels, D [H]. Source: Lahoti et al. 2026, arXiv 2603.15569;
// state-spaces/mamba, the SISO step reference.
#include <algorithm>

#include "families/elementwise/carry/carry.h"
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration mamba_3() {
  Declaration d;
  d.info.name = "mamba-3";
  d.info.recipe = "gate(trapezoid) / linear / gd(1)";
  d.info.title = "Mamba-3 (SISO)";
  d.info.paper = "Lahoti et al. 2026, arXiv 2603.15569";
  d.info.equation =
      "phi_t = phi_{t-1} + pi tanh(angles_t) dt_t ;  q~, k~ = (q + q_bias), (k + k_bias) turned by phi_t ;  S_t = "
      "exp(adt_t) S_{t-1} + (1-lam_t) dt_t exp(adt_t) k~_{t-1} v_{t-1}' + lam_t dt_t k~_t v_t' ;  o_t = (S_t' q~_t + "
      "D "
      "v_t) * silu(z_t)";
  d.info.scale = "none";
  d.info.departure =
      "queries and keys are biased and turned before the regression; skip D v and gate silu(z) after it";
  d.info.traps = {"The state also holds the last key (biased and turned), the last value and the angle.",
                  "The older pair is written with this token's dt and decay, not with its own.",
                  "trap is before the sigmoid; adt is the log decay, already A dt."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"adt", "B T H", "log of the decay", Range::log_gate},
                   {"dt", "B T H", "size of the write", Range::sigmoid},
                   {"trap", "B T H", "share of the write at its own token, before the sigmoid", Range::normal},
                   {"q_bias", "H K", "added to q", Range::normal},
                   {"k_bias", "H K", "added to k", Range::normal},
                   {"angles", "B T H R", "rate of rotation of each pair of channels, before tanh", Range::normal},
                   {"D", "H", "skip", Range::normal},
                   {"z", "B T H V", "output gate before silu", Range::normal}};
  d.info.outputs = {output()};
  d.info.settings = {{"rotated", "pairs of channels that are turned; K/4 unless given", "", true}};
  d.info.golden = {{"mamba3_siso",
                    {{"ssm0", "state.S^"},
                     {"ssm", "state.S^"},
                     {"angle0", "state.angle"},
                     {"angle", "state.angle"},
                     {"k0", "state.k"},
                     {"k_state", "state.k"},
                     {"v0", "state.v"},
                     {"v_state", "state.v"}},
                    {{"rotated", "#angles.3"}}}};
  using prepare::Op;
  d.feeds = {{"g", "adt"}};
  d.prepare = {{Op::phase_step, {"angles", "dt"}, "turn"},
               {.from = {"turn"},
                .to = "phi",
                .family = &families::carry_family,
                .option = static_cast<int>(families::Carry::phase),
                .state = {"angle", "B H R", "angle of each pair, in [0, 2 pi)", Range::positive}},
               {Op::add, {"q", "q_bias"}, "biased_q", 0, "B T H K"},
               {Op::add, {"k", "k_bias"}, "biased_k", 0, "B T H K"},
               {Op::rotate, {"biased_q", "phi"}, "q", 0, "B T H K"},
               {Op::rotate, {"biased_k", "phi"}, "k", 0, "B T H K"}};
  d.finish = {{Op::skip, {"o", "v", "D"}, "skipped"}, {Op::silu_gate, {"skipped", "z"}, "o"}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape& shape) {
    const int pairs =
        whole_setting(layer, settings, "rotated", std::max(shape.key_dim / 4, shape.key_dim > 1 ? 1 : 0), 0);
    if (2 * pairs > shape.key_dim)
      throw Error("mamba-3 cannot turn " + std::to_string(pairs) + " pairs of " + std::to_string(shape.key_dim) +
                      " channels; key_dim must be at least twice `rotated`",
                  "setting rotated");
    layer.letters['R'] = pairs;
    if (pairs == 0)  // nothing to turn, and no angle to keep
      layer.prepare = {{Op::add, {"q", "q_bias"}, "q", 0, "B T H K"}, {Op::add, {"k", "k_bias"}, "k", 0, "B T H K"}};
  };
  return d;
}

}  // namespace ttr::zoo
