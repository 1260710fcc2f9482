// LaCT: a gated perceptron that takes one step per large chunk, with an orthogonalised update.
//
//   f(x) = W1 (silu(W0 x) * (W2 x)) ;  tokens of a chunk read the weights before it, then
//   M_i <- sum_t lr_i,t d(f(k_t).v_t)/dW_i + mean(mom) M_i ;  W_i <- W_i + NS5(M_i) , columns back to their first length
//
// The last chunk of what was seen waits until a token follows it: it is read only. The weights of a unit (a row in the
// paper's layout, a column [in, out] here) keep the length they had at first. Source: Zhang et al. 2025, arXiv
// 2505.23884.
#include "families/network/neural/options.h"
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration lact() {
  using prepare::Op;
  const auto weights = [](const char* name, const char* shape) {
    return InputInfo{name,           shape, "weights at the first token; left out: those of the state",
                     Range::weights, true,  true};
  };
  Declaration d;
  d.info.name = "lact";
  d.info.recipe = "equal / swiglu / minibatch(2048, rate, momentum, muon, rownorm) | dot, read(before)";
  d.info.title = "LaCT: large chunk test-time training";
  d.info.paper = "Zhang et al. 2025, arXiv 2505.23884";
  d.info.equation =
      "per chunk: o = f(q) ;  M <- sum_t lr_t d(f(k_t).v_t)/dW + mean(mom) M ;  W <- rows of W + NS5(M)";
  d.info.departure =
      "one step per chunk, taken when the next one begins, with a step for every matrix and LaCT's coefficients";
  d.info.literal = false;
  d.info.scale = "none";
  d.info.traps = {"The chunk is part of the model, not a speed knob: another size is another function.",
                  "The last chunk is read only: a sequence shorter than a chunk learns nothing.",
                  "A float update is orthogonalised to about 3e-4 in its gradients (the file says 2.7e-4)."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"lr0", "B T H", "step of W0", Range::rate},
                   {"lr1", "B T H", "step of W1", Range::rate},
                   {"lr2", "B T H", "step of W2", Range::rate},
                   {"mom", "B T H", "factor on the previous update; its mean over the chunk counts", Range::sigmoid},
                   weights("W0", "H K D"),
                   weights("W1", "H D V"),
                   weights("W2", "H K D")};
  d.info.outputs = {output()};
  d.feeds = {{"momentum", "mom"}};
  d.prepare = {{Op::join_three, {"lr0", "lr1", "lr2"}, "rates", 0, "B T H J"}, {Op::scale, {"lr0"}, "rate", 1}};
  d.letters['J'] = 3;
  d.options_of<families::NeuralOptions>().lazy = d.options_of<families::NeuralOptions>().scheduled = true;
  d.options_of<families::NeuralOptions>().rates = 3;
  d.info.settings = {{"batch", "tokens of a chunk, part of the model; 2048 if not given", ""},
                     {"width", "hidden units; 4 K if not given", ""},
                     {"muon", "yes: the update is orthogonalised by five Newton-Schulz steps; no", ""}};
  d.info.variants = {{"batch=3,muon=no"}, {"batch=4,width=6"}};
  d.info.golden = {{"lact",
                    {{"W0", "W0^"},
                     {"W1", "W1^"},
                     {"W2", "W2^"},
                     {"W0_t", "state.W0^"},
                     {"W1_t", "state.W1^"},
                     {"W2_t", "state.W2^"}},
                    {{"batch", "@chunk_size"}, {"width", "#W0.1"}, {"muon", "@newton_schulz"}}}};
  d.info.tolerance_f32 = 1e-3;
  d.info.conditioning = 100;
  d.info.tolerance_reason =
      "a plain float evaluation of the orthogonalised update loses 2.7e-4 (golden lact, case a)";
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    layer.options_of<families::NeuralOptions>().step_every = whole_setting(layer, settings, "batch", 2048);
  };
  return d;
}

}  // namespace ttr::zoo
