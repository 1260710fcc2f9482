// Test-time training: a linear map or a perceptron, with a layer norm, learned by gradient steps on mini-batches.
//
//   f(x) = x + LN(x W + b)   or   x + LN(gelu(x W0 + b0) W1 + b1) , LN with weight norm_w and bias norm_b
//   token s of a mini-batch:  u_s = -lr_s d/dW 1/2 |f(k_s) - v_s|^2 at the weights A of the start of the mini-batch
//   token t reads  f(q_t) with  W_t = A + token_eta_t sum_{s <= t} u_s ;  the last one's weights are carried on
//
// q, k [B,T,G,K], v [B,T,H,V] with K = V. In the published code the target of LN(.) is v - k, which is the same. The
// mini-batch is part of the model: weights trained with 16 are another model with 32. q and k come with rotary
// positions (modulo the mini-batch) already in them. Source: Sun et al. 2024, arXiv 2407.04620.
#include "families/network/neural/options.h"
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

InputInfo optional(const char* name, const char* shape, const char* meaning, Range range) {
  return {name, shape, meaning, range, true, true};
}

const char* batch_trap =
    "The mini-batch is part of the model, not a speed knob: `batch` changes the function, `chunk` does not.";

// What the three have in common. `steps` are the inputs that say how far a token steps; they stand before the norm.
Declaration of_batches(const std::vector<InputInfo>& steps) {
  Declaration d;
  d.options_of<families::NeuralOptions>().block = true;
  d.info.literal = false;
  d.info.square = true;
  d.info.inputs = {query(Range::unit), key(Range::unit), value()};
  d.info.inputs.insert(d.info.inputs.end(), steps.begin(), steps.end());
  d.info.inputs.push_back(optional("norm_w", "H V", "weight of the norm; left out: 1", Range::positive));
  d.info.inputs.push_back(optional("norm_b", "H V", "bias of the norm; left out: 0", Range::small));
  d.info.outputs = {output()};
  d.info.settings = {{"batch", "tokens of a mini-batch, part of the model", ""},
                     {"rate", "a constant step", "0.02"},
                     {"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.variants = {{"batch=3"}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    layer.letters['C'] = whole_setting(layer, settings, "batch", 16);
  };
  return d;
}

// The two of the paper: a step per token, a factor per place, and weights to start from: a first layer of shape `W`
// with a bias of shape `b`, and what `rest` has.
Declaration published(const char* W, const char* b, const std::vector<InputInfo>& rest = {}) {
  Declaration d =
      of_batches({{"lr", "B T H", "step of every token", Range::rate},
                  optional("token_eta", "C", "factor by the place in the mini-batch; left out: 1", Range::sigmoid)});
  d.info.paper = "Sun et al. 2024, arXiv 2407.04620";
  d.info.departure = "a factor by the place in the mini-batch, a norm with weights, initial weights as inputs";
  d.info.scale = "none";
  d.info.inputs.push_back(
      optional("W0", W, "weights at the first token; left out: those of the state", Range::weights));
  d.info.inputs.push_back(optional("b0", b, "bias at the first token", Range::small));
  d.info.inputs.insert(d.info.inputs.end(), rest.begin(), rest.end());
  d.feeds = {{"rate", "lr"}};
  return d;
}

}  // namespace

Declaration ttt_linear() {
  Declaration d = published("H K V", "H V");
  d.info.name = "ttt-linear";
  d.info.recipe = "equal / layernorm(linear, bias, residual) / minibatch(16, rate)";
  d.info.title = "TTT-Linear";
  d.info.equation = "W_t = A + token_eta_t sum_{s<=t} u_s ,  u_s = -lr_s grad at A ;  o_t = q_t + LN(q_t W_t + b_t)";
  d.info.traps = {batch_trap, "token_eta belongs to the token that reads, lr to the token that is learned.",
                  "A sequence's last mini-batch may be shorter; the next call goes on in the middle of it."};
  d.info.golden = {{"ttt_linear",
                    {{"ln_w", "norm_w"},
                     {"ln_b", "norm_b"},
                     {"W1", "W0"},
                     {"b1", "b0[H 1 V]"},
                     {"W1_t", "state.W0"},
                     {"b1_t", "state.b0="}},
                    {{"batch", "@mini_batch_size"}}}};
  return d;
}

Declaration ttt_mlp() {
  Declaration d = published("H K D", "H D",
                            {optional("W1", "H D V", "weights at the first token", Range::weights),
                             optional("b1", "H V", "bias at the first token", Range::small)});
  d.info.name = "ttt-mlp";
  d.info.recipe = "equal / mlp(2, gelu_tanh, bias, residual, layernorm) / minibatch(16, rate)";
  d.info.title = "TTT-MLP";
  d.info.equation = "as ttt-linear with f(x) = x + LN(gelu(x W0 + b0) W1 + b1), four times as wide inside";
  d.info.traps = {
      batch_trap,
      "gelu is the tanh form. The published code rounds its derivative's constants to 8 digits: gradients "
      "through it agree to 1e-8."};
  d.info.settings.push_back({"width", "hidden units; 4 K if not given", ""});
  d.info.golden = {{"ttt_mlp",
                    {{"ln_w", "norm_w"},
                     {"ln_b", "norm_b"},
                     {"W1", "W0"},
                     {"b1", "b0[H 1 D]"},
                     {"W2", "W1"},
                     {"b2", "b1[H 1 V]"},
                     {"W1_t", "state.W0"},
                     {"b1_t", "state.b0="},
                     {"W2_t", "state.W1"},
                     {"b2_t", "state.b1="}},
                    {{"batch", "@mini_batch_size"}}}};
  d.info.tolerance_f64 = 1e-8;
  d.info.tolerance_reason =
      "the published code, which made the golden vectors, rounds two constants of gelu' to 8 digits";
  return d;
}

Declaration ttt_linear_fla() {
  Declaration d = of_batches({{"gain", "B T H", "step of the token that reads", Range::sigmoid}});
  d.options_of<families::NeuralOptions>().skip_sum = d.options_of<families::NeuralOptions>().zero_start = true;
  d.scale_by_root_key = true;
  d.info.name = "ttt-linear-fla";
  d.info.recipe = "equal / layernorm(linear, bias, residual) / minibatch(16)";
  d.info.title = "TTT-Linear as in flash-linear-attention";
  d.info.paper = "Sun et al. 2024, arXiv 2407.04620; flash-linear-attention";
  d.info.equation = "W_t = A - gain_t sum_{s<=t} k_s d_s' ;  o_t = f + LN(f) , f = q_t W_t + b_t";
  d.info.departure = "the step belongs to the token that reads, and o_t = f + LN(f) with f = q_t W_t + b_t, not q_t";
  d.info.scale = "K^-0.5 on q";
  d.info.traps = {batch_trap, "The state moves on with the gain of the last token of a mini-batch."};
  d.info.golden = {{"ttt_linear_fla",
                    {{"w", "norm_w"},
                     {"b", "norm_b"},
                     {"eta", "gain[B T H 1]"},
                     {"h0", "state.W0"},
                     {"ht", "state.W0"},
                     {"hb0", "state.b0="},
                     {"hbt", "state.b0="}},
                    {{"batch", "@mini_batch_size"}}}};
  return d;
}

}  // namespace ttr::zoo
