// mLSTM of xLSTM: exponential input gates with a running maximum, and a normaliser that is never below one.
//
//   m_t = max(lf_t + m_{t-1}, i_t) ;  f' = e^{lf_t + m_{t-1} - m_t} ;  i' = e^{i_t - m_t}
//   C_t = f' C_{t-1} + i' (c k_t) v_t' ;  n_t = f' n_{t-1} + i' c k_t
//   denom_t = max(|n_t.q_t|, e^{-m_t}) + eps ;  o_t = C_t' q_t / denom_t ,   c = 1/sqrt(K)
//
// q, k [B,T,G,K], v [B,T,H,V], i and f [B,T,H] before activation: lf = log sigmoid(f), or f itself with forget=exp.
// Source: Beck et al. 2024, NX-AI/xlstm.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration mlstm() {
  Declaration d;
  d.info.name = "mlstm";
  d.info.recipe = "gate(exponential) / linear / gd(1) | normalise(max)";
  d.info.title = "mLSTM (xLSTM)";
  d.info.paper = "Beck et al. 2024, arXiv 2405.04517";
  d.info.equation =
      "m_t = max(lf_t + m_{t-1}, i_t) ;  C_t = exp(lf_t + m_{t-1} - m_t) C_{t-1} + exp(i_t - m_t) (c k_t) v_t' ;  "
      "n_t likewise with v = 1 ;  o_t = C_t' q_t / (max(|n_t.q_t|, exp(-m_t)) + eps)";
  d.info.scale = "c = 1/sqrt(K) on k, inside the stored state";
  d.info.departure = "eps is added to the denominator relative to exp(m); with the default 0 nothing departs";
  d.info.traps = {"C and n are relative to exp(m): compare products C exp(m), not C.",
                  "The released code adds eps = 1e-6 to the stabilised denominator (setting eps).",
                  "forget=exp takes f as the log of the gate itself."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"i", "B T H", "log of the input gate", Range::normal},
                   {"f", "B T H", "forget gate before its activation", Range::normal}};
  d.info.outputs = {output(), {"denom", "B T H", "what the output was divided by, relative to exp(m)"}};
  d.info.settings = {{"forget", "sigmoid or exp: activation of f", "", true},
                     {"eps", "added to the denominator", "", true},
                     {"decay", "a constant factor instead of f, in (0, 1]", "0.98"}};
  d.info.variants = {{"forget=exp"}};
  d.info.golden = {{"mlstm",
                    {{"C0", "state.C"},
                     {"n0", "state.n"},
                     {"m0", "state.m"},
                     {"Ct", "state.C"},
                     {"nt", "state.n"},
                     {"mt", "state.m"}},
                    {{"forget", "@forget"}, {"eps", "@eps"}}}};
  d.scale_by_root_key = true;
  d.prepare = {{prepare::Op::log_sigmoid, {"f"}, "g"}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    layer.kernel_number = number_setting(layer, settings, "eps", 0);
    if (word_setting(layer, settings, "forget", {"sigmoid", "exp"}) == "exp")
      layer.prepare.clear(), layer.feeds = {{"g", "f"}}, layer.info.inputs.back().range = Range::log_gate;
  };
  return d;
}

}  // namespace ttr::zoo
