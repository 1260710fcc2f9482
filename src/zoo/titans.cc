// Titans' long-term memory: gradient steps with momentum and forgetting, by gates that the data choose.
//
//   Z_t = eta_t Z_{t-1} - theta_t grad |M(k_t) - v_t|^2 ;  M_t = (1 - alpha_t) M_{t-1} + Z_t ;  o_t = M_t(q_t)
//
// titans: the gradient is taken at the weights of the start of a chunk of `batch` tokens; M is linear (depth 1) or a
// perceptron with gelu. titans-pytorch, the public reimplementation: M(x) = x + LN(mlp(x)) (1 + gamma), gamma is
// learned on the way as well; Z and M move once per chunk by the sum of its gradients (of the mean over channels) and
// its mean gates; gradients are taken at the first weights, or at those of every `batch` tokens; o_t reads the
// weights after the last complete chunk. Sources: Behrouz, Zhong, Mirrokni 2024, arXiv 2501.00663;
// lucidrains/titans-pytorch. The loss has no factor 1/2.
#include "families/network/neural/options.h"
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

using prepare::Op;

const char* chunk_trap = "The chunk is part of the model, not a speed knob: another size is another function.";

InputInfo weights(std::string name, std::string shape) {
  return {std::move(name),
          std::move(shape),
          "weights at the first token; left out: those of the state",
          Range::weights,
          true,
          true};
}

// W0 .. of a memory of so many matrices.
void add_weights(Declaration& d, int depth) {
  if (depth == 1 && !d.options_of<families::NeuralOptions>().learned_norm)
    return d.info.inputs.push_back(weights("S", "H K V"));
  for (int j = 0; j < depth; ++j)
    d.info.inputs.push_back(
        weights("W" + std::to_string(j), std::string("H ") + (j == 0 ? "K" : "D") + (j + 1 == depth ? " V" : " D")));
}

}  // namespace

Declaration titans() {
  Declaration d;
  d.info.name = "titans";
  d.info.recipe = "equal / mlp(2) / minibatch(16, rate, momentum, shrink)";
  d.info.title = "Titans: long-term memory";
  d.info.paper = "Behrouz, Zhong, Mirrokni 2024, arXiv 2501.00663";
  d.info.equation = "Z_t = eta_t Z_{t-1} - theta_t grad ;  M_t = (1 - alpha_t) M_{t-1} + Z_t ;  o_t = M_t(q_t)";
  d.info.departure = "initial weights as inputs";
  d.info.literal = false;
  d.info.scale = "none";
  d.info.traps = {chunk_trap, "The loss is |M(k) - v|^2 without 1/2: theta here is half the rate of the recipe."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"theta", "B T H", "step", Range::rate},
                   {"eta", "B T H", "factor on the previous update", Range::sigmoid},
                   {"alpha", "B T H", "share forgotten", Range::rate}};
  d.info.outputs = {output()};
  d.feeds = {{"momentum", "eta"}, {"lam", "alpha"}};
  d.prepare = {{Op::scale, {"theta"}, "rate", 2}};
  d.info.settings = {{"depth", "matrices of the memory; 1 = linear", ""},
                     {"width", "hidden units; 4 K if not given", ""},
                     {"batch", "tokens whose gradients are taken at the same weights, part of the model", ""},
                     {"rate", "a constant step, twice theta", "0.02"},
                     {"shrink", "a constant share forgotten", "0.001"},
                     {"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.variants = {{"batch=3"}, {"depth=1,batch=4"}, {"depth=3,width=6,batch=1"}};
  d.info.golden = {{"titans_chunked_linear",
                    {{"h0", "state.S"}, {"ht", "state.S"}, {"s0", "state.Z"}, {"st", "state.Z"}},
                    {{"depth", "1"}, {"batch", "@chunk_size"}}},
                   {"titans_chunked_mlp",
                    {{"W0_t", "state.W0"}, {"W1_t", "state.W1"}, {"S_W0_t", "state.Z_W0"}, {"S_W1_t", "state.Z_W1"}},
                    {{"width", "#W0.2"}, {"batch", "@chunk_size"}}}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    add_weights(layer, whole_setting(layer, settings, "depth", 2));
  };
  return d;
}

Declaration titans_pytorch() {
  Declaration d;
  d.info.name = "titans-pytorch";
  d.info.recipe = "equal / mlp(2, residual, layernorm) / minibatch(16, rate, momentum, shrink)";
  d.info.title = "Titans' memory as in titans-pytorch";
  d.info.paper = "Behrouz, Zhong, Mirrokni 2024, arXiv 2501.00663; lucidrains/titans-pytorch";
  d.info.equation =
      "per chunk: Z <- eta Z - sum_t lr_t grad mean_d (M(k_t) - v_t)^2 ;  M <- (1 - alpha) M + Z ;  o_t = M(q_t), "
      "M(x) = x + LN(mlp(x)) (1 + gamma)";
  d.info.square = true;
  d.info.conditioning = 10;
  d.info.tolerance_reason =
      "what a network learns from rounded gradients it reads again: rounding grows with every chunk";
  d.info.departure =
      "one step per chunk with the mean of its gates, gamma in the memory, gradients at the first weights";
  d.info.literal = false;
  d.info.scale = "none";
  d.info.traps = {chunk_trap,
                  "A token reads the weights after the last complete chunk, its own included if it completes it; "
                  "the tokens of an unfinished chunk wait in the state.",
                  "Forgetting pulls the weights towards zero, not towards the first ones."};
  d.info.inputs = {
      query(Range::unit),
      key(Range::unit),
      value(),
      {"lr", "B T H", "step of every token", Range::rate},
      {"eta", "B T H", "factor on the previous update; its mean over the chunk counts", Range::sigmoid},
      {"alpha", "B T H", "share forgotten; its mean over the chunk counts", Range::rate},
      {"gamma", "H V", "gain of the norm at the first token; left out: that of the state", Range::small, true, true}};
  d.info.outputs = {output()};
  d.feeds = {{"rate", "lr"}, {"momentum", "eta"}, {"lam", "alpha"}};
  d.options_of<families::NeuralOptions>().learned_norm = d.options_of<families::NeuralOptions>().mean_gradient = true;
  d.options_of<families::NeuralOptions>().gradient_scale = 2, d.options_of<families::NeuralOptions>().norm_eps = 1e-5;
  d.info.settings = {{"depth", "matrices of the memory", ""},
                     {"keys", "raw, unit or rms: norm of q and k", "unit"},
                     {"rate", "a constant step", "0.02"},
                     {"shrink", "a constant share forgotten", "0.001"},
                     {"width", "hidden units; 4 K if not given", ""},
                     {"chunk", "tokens per step, part of the model; 16 if not given", "", true},
                     {"refresh",
                      "tokens after which gradients are taken at new weights, a multiple of chunk; 0 = "
                      "never",
                      "", true}};
  d.info.variants = {{"chunk=1"}, {"chunk=4,depth=1"}, {"chunk=2,refresh=6,width=5"}};
  const auto states = [](int depth) {
    std::vector<std::pair<std::string, std::string>> list = {
        {"eta", "eta%"}, {"alpha", "alpha%"}, {"gamma_t", "state.gamma"}, {"S_gamma_t", "state.Z_gamma"}};
    for (int j = 0; j < depth; ++j) {
      const std::string w = "W" + std::to_string(j);
      list.push_back({w + "_t", "state." + w}), list.push_back({"S_" + w + "_t", "state.Z_" + w});
    }
    return list;
  };
  d.info.golden = {
      {"titans_memory_depth1", states(1), {{"depth", "1"}, {"chunk", "@chunk_size"}, {"refresh", "@batch_size"}}},
      {"titans_memory_depth2",
       states(2),
       {{"width", "#W0.2"}, {"chunk", "@chunk_size"}, {"refresh", "@batch_size"}}}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    layer.options_of<families::NeuralOptions>().step_every = whole_setting(layer, settings, "chunk", 16);
    layer.options_of<families::NeuralOptions>().batch = whole_setting(layer, settings, "refresh", 0, 0);
    if (layer.options_of<families::NeuralOptions>().batch % layer.options_of<families::NeuralOptions>().step_every !=
        0)
      throw Error("titans-pytorch takes its gradients at new weights after whole chunks: refresh " +
                      std::to_string(layer.options_of<families::NeuralOptions>().batch) +
                      " is not a multiple of chunk " +
                      std::to_string(layer.options_of<families::NeuralOptions>().step_every),
                  "setting refresh");
    add_weights(layer, whole_setting(layer, settings, "depth", 2));
  };
  return d;
}

}  // namespace ttr::zoo
