// Operations with a name: feature maps, norms, the rotary embedding and the short convolution, each on one tensor
// before or after a regression. They have no recipe; as layers they have checks, gradients, a page and golden vectors
// like every other. Formulas: prepare/operations.def.
#include "families/elementwise/carry/carry.h"
#include "families/elementwise/convolution/short_convolution.h"
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

using prepare::Op;
using Settings = std::map<std::string, std::string>;

Declaration operation(std::string name, std::string title, std::string paper, std::string equation) {
  Declaration d;
  d.info.name = std::move(name), d.info.title = std::move(title), d.info.paper = std::move(paper);
  d.info.equation = std::move(equation);
  d.info.scale = "none";
  d.info.literal = false;
  d.info.grouped = false;
  d.info.tolerance_f64 = 1e-12, d.info.tolerance_f32 = 1e-5;
  return d;
}

// phi = op(x, parameters...), [B T H K] -> [B T H F]
Declaration feature_map(std::string name, std::string title, std::string paper, std::string equation, Op op,
                        std::string golden, std::vector<InputInfo> parameters = {}) {
  Declaration d = operation(std::move(name), std::move(title), std::move(paper), std::move(equation));
  d.info.inputs = {{"x", "B T H K", "query or key", Range::normal}};
  Stage stage{op, {"x"}, "phi"};
  bool has_features = false;
  for (const InputInfo& parameter : parameters) {
    d.info.inputs.push_back(parameter);
    stage.from.push_back(parameter.name);
    has_features |= parameter.shape.find('M') != std::string::npos;
  }
  d.info.outputs = {{"phi", "B T H F", "features", Range::normal}};
  d.finish = {stage};
  if (has_features) d.info.settings = {{"features", "rows of the matrix (K unless given)", "", true}};
  if (!golden.empty()) {
    d.info.golden = {{std::move(golden), {}, {}}};
    if (has_features)
      d.info.golden.front().settings = {{"features", "#" + parameters[0].name +
                                                         (op == Op::dijiang              ? ".1"
                                                          : parameters[0].shape == "M K" ? ".0"
                                                                                         : ".1")}};
  }
  d.adapt = set_features;
  return d;
}

InputInfo shared_matrix(Range range = Range::small) { return {"W", "M K", "random matrix, shared by heads", range}; }
std::vector<InputInfo> learned_map() {
  return {{"W", "H M K", "learned matrix, rows are features", Range::normal},
          {"b", "H M", "learned bias", Range::normal}};
}

// y = op(x, parameters...), as wide as x
Declaration norm(std::string name, std::string title, std::string equation, Op op, double number, std::string golden,
                 const std::vector<InputInfo>& parameters = {}) {
  Declaration d = operation(std::move(name), std::move(title), "", std::move(equation));
  d.info.inputs = {{"x", "B T H K", "query, key or output", Range::normal}};
  Stage stage{op, {"x"}, "y", number};
  for (const InputInfo& parameter : parameters) {
    d.info.inputs.push_back(parameter);
    stage.from.push_back(parameter.name);
  }
  d.info.outputs = {{"y", "B T H K", "normalised", Range::normal}};
  d.finish = {stage};
  d.info.golden = {{std::move(golden), {}, {}}};
  return d;
}

InputInfo weight() { return {"w", "K", "weight, shared by heads", Range::normal}; }
InputInfo gate() { return {"z", "B T H K", "gate before its activation", Range::normal}; }

Declaration gated_norm(bool gate_first) {
  Declaration d = gate_first
                      ? norm("rms-norm-gate-first", "RMS norm of the gated output (Mamba-2)",
                             "y = RMSNorm(x act(z)) w ,  RMSNorm(x) = x / sqrt(mean x^2 + eps)",
                             Op::rms_gate_gate_first_silu, 1e-5, "rmsnorm_gated_gate_first", {gate(), weight()})
                      : norm("rms-norm-norm-first", "gated RMS norm of the output (FLA, Qwen3-Next)",
                             "y = RMSNorm(x) w act(z) ,  RMSNorm(x) = x / sqrt(mean x^2 + eps)",
                             Op::rms_gate_norm_first_silu, 1e-5, "rmsnorm_gated_norm_first", {gate(), weight()});
  d.info.traps = {"Norm and gate do not commute: a checkpoint needs the order it was trained with."};
  d.info.settings = {{"activation", "silu or sigmoid", "", true}, {"eps", "added to the mean square", "", true}};
  d.info.variants = {{"activation=sigmoid"}};
  d.info.golden.front().settings = {{"activation", "@gate_activation"}};
  d.adapt = [](Declaration& layer, const Settings& settings, const Shape&) {
    Stage& stage = layer.finish.back();
    stage.number = number_setting(layer, settings, "eps", stage.number);
    if (word_setting(layer, settings, "activation", {"silu", "sigmoid"}) == "sigmoid")
      stage.op = stage.op == Op::rms_gate_gate_first_silu ? Op::rms_gate_gate_first_sigmoid
                                                          : Op::rms_gate_norm_first_sigmoid;
  };
  return d;
}

void set_eps(Declaration& layer, const Settings& settings, const Shape&) {
  layer.finish.back().number = number_setting(layer, settings, "eps", layer.finish.back().number);
}

Declaration with_eps(Declaration d) {
  d.info.settings = {{"eps", "added where the formula says", "", true}};
  d.adapt = set_eps;
  return d;
}

// Positions count from the start of a sequence, across calls.
Stage position() {
  return {.to = "n",
          .shape = "B T 1",
          .family = &families::carry_family,
          .option = static_cast<int>(families::Carry::position),
          .state = {"position", "B 1", "tokens seen", Range::positive, false}};
}

Declaration cosformer_map() {
  Declaration d = feature_map("feature-cosformer", "cosFormer's feature map", "Qin et al. 2022, arXiv 2202.08791",
                              "phi = [relu(x_t) cos a ; relu(x_t) sin a] ,  a = pi i / (2 L) ,  i = t + 1 + offset",
                              Op::cosformer, "feature_map_cosformer");
  d.info.traps = {"L is fixed, not the length of the sequence: only so can the map stream.",
                  "Released code has the sine block first; the kernel phi(q).phi(k) is the same."};
  d.info.settings = {{"length", "L, the longest sequence", "", true},
                     {"offset", "tokens before the first", "", true}};
  d.info.golden.front().settings = {{"length", "@L_max"}, {"offset", "@position_offset"}};
  d.prepare = {position(), {Op::add, {"n", "0"}, "start"}};
  d.finish.front().from = {"x", "start"};
  d.adapt = [](Declaration& layer, const Settings& settings, const Shape& shape) {
    layer.finish.back().number = whole_setting(layer, settings, "length", 4096);
    layer.prepare.back().from = {"n", std::to_string(whole_setting(layer, settings, "offset", 0, 0))};
    layer.letters['F'] = 2 * shape.key_dim;
  };
  return d;
}

Declaration dpfp_map() {
  Declaration d =
      feature_map("feature-dpfp", "DPFP feature map", "Schlag, Irie, Schmidhuber 2021, arXiv 2102.11174",
                  "r = [relu(x); relu(-x)] ;  phi = [r * roll(r, j)] for j = 1..nu", Op::dpfp, "feature_map_dpfp");
  d.info.traps = {"This is the form of the paper; some public code has [relu(x); -relu(x)]."};
  d.info.settings = {{"nu", "number of rolls", "", true}};
  d.info.variants = {{"nu=2"}};
  d.info.golden.front().settings = {{"nu", "@nu"}};
  d.adapt = [](Declaration& layer, const Settings& settings, const Shape& shape) {
    layer.finish.back().number = whole_setting(layer, settings, "nu", 1);
    layer.letters['F'] = 2 * shape.key_dim * static_cast<int>(layer.finish.back().number);
  };
  return d;
}

Declaration polynomial_map() {
  Declaration d = feature_map("feature-polynomial", "Monomials", "", "phi = all monomials of x up to `degree`",
                              Op::polynomial, "");
  d.info.settings = {{"degree", "of the polynomial", "", true}};
  d.info.variants = {{"degree=3", 8}};
  d.adapt = [](Declaration& layer, const Settings& settings, const Shape& shape) {
    Stage& map = layer.finish.back();
    map.number = whole_setting(layer, settings, "degree", 2);
    const auto width = prepare::feature_width(map.op, shape.key_dim, 0, map.number);
    if (width > (1 << 24))
      throw Error("degree " + std::to_string(static_cast<int>(map.number)) + " of " + std::to_string(shape.key_dim) +
                      " keys is " + std::to_string(width) + " monomials; lower the degree",
                  "setting degree");
    layer.letters['F'] = static_cast<int>(width);
  };
  return d;
}

Declaration rotary() {
  Declaration d = operation("rotary", "Rotary position embedding", "Su et al. 2021, arXiv 2104.09864",
                            "pairs of elements of x_t are turned by the angle t base^(-2i/K), i = 0..K/2-1");
  d.info.inputs = {{"x", "B T H K", "query or key", Range::normal}};
  d.info.outputs = {{"y", "B T H K", "turned by its position", Range::normal}};
  d.info.traps = {"Two layouts are in use: pairs (2i, 2i+1) and pairs (i, i + K/2).",
                  "Positions count from the start of the sequence, across calls."};
  d.info.settings = {{"base", "of the frequencies", "", true}, {"pairs", "interleaved or half", "", true}};
  d.info.variants = {{"pairs=half"}};
  d.prepare = {position()};
  d.finish = {{Op::rotary_interleaved, {"x", "n"}, "y", 10000}};
  d.adapt = [](Declaration& layer, const Settings& settings, const Shape&) {
    Stage& stage = layer.finish.back();
    stage.number = number_setting(layer, settings, "base", 10000);
    if (!(stage.number > 1)) throw Error("rotary takes a base above 1", "setting base");
    if (word_setting(layer, settings, "pairs", {"interleaved", "half"}) == "half") stage.op = Op::rotary_half;
  };
  return d;
}

Declaration short_convolution() {
  Declaration d = operation("short-convolution", "Short convolution", "Poli et al. 2023, arXiv 2302.10866",
                            "y_t = act(b + sum_{i<W} w[:, i] x_{t-W+1+i})");
  d.info.inputs = {{"x", "B T H V", "what is convolved along time, channel by channel", Range::normal},
                   {"w", "H V J", "taps; the last one meets the current token", Range::normal},
                   {"b", "H V", "bias", Range::normal}};
  d.info.outputs = {{"y", "B T H V", "output", Range::normal}};
  d.info.traps = {"The cache holds the last W - 1 inputs, oldest first; fla caches W of which it reads W - 1."};
  d.info.settings = {{"width", "W, number of taps", "", true},
                     {"activation", "silu or none", "", true},
                     {"bias", "input or none", "", true}};
  d.info.variants = {{"width=1,bias=none"}, {"width=2,activation=none"}, {"width=7"}};
  d.info.golden = {{"short_conv",
                    {{"x", "x[B T HV]"},
                     {"y", "y[B T HV]"},
                     {"w", "w[HV J]"},
                     {"b", "b[HV]"},
                     {"x0", "state.x[B W HV]"},
                     {"xt", "state.x[B W HV]"}},
                    {{"width", "@width"}, {"activation", "@activation"}, {"bias", "!b"}}}};
  d.finish = {{.from = {"x", "w", "b"},
               .to = "y",
               .family = &families::convolution_family,
               .option = static_cast<int>(families::ConvolutionActivation::silu),
               .state = {"x", "B H W V", "the last W - 1 inputs, oldest first"}}};
  d.adapt = [](Declaration& layer, const Settings& settings, const Shape&) {
    Stage& stage = layer.finish.back();
    const int width = whole_setting(layer, settings, "width", 4);
    layer.letters['J'] = width, layer.letters['W'] = width - 1;
    if (word_setting(layer, settings, "activation", {"silu", "none"}) == "none")
      stage.option = static_cast<int>(families::ConvolutionActivation::none);
    if (word_setting(layer, settings, "bias", {"input", "none"}) == "none") stage.from.pop_back();
  };
  return d;
}

}  // namespace

std::vector<Declaration> operations() {
  const InputInfo gamma{"gamma", "K", "scale of the layer norm", Range::normal},
      beta{"beta", "K", "shift of the layer norm", Range::normal};
  const char* hedgehog = "Zhang, Bhatia, Kumbong, Re 2024, arXiv 2402.04347";
  const char* performer = "Choromanski et al. 2020, arXiv 2009.14794";
  std::vector<Declaration> all = {
      feature_map("feature-elu1", "1 + ELU", "Katharopoulos et al. 2020, arXiv 2006.16236",
                  "phi_i = x_i + 1 if x_i > 0, else exp(x_i)", Op::elu1, "feature_map_elu1"),
      feature_map("feature-relu", "ReLU", "", "phi_i = max(x_i, 0)", Op::relu, "feature_map_relu"),
      feature_map("feature-silu", "SiLU", "", "phi_i = x_i sigmoid(x_i)", Op::silu, "feature_map_silu"),
      feature_map(
          "feature-taylor2", "Second-order Taylor map (Based)", "Arora et al. 2024, arXiv 2402.18668",
          "phi = [1 ; x_i/K^(1/4) ; x_i^2/sqrt(2K) ; x_i x_j/sqrt(K), i < j] ;  phi(x).phi(y) = 1 + s + s^2/2",
          Op::taylor2, "feature_map_taylor2"),
      feature_map("feature-rebased", "ReBased's quadratic map", "Aksenov et al. 2024, arXiv 2402.10644",
                  "y = gamma LN(x) + beta ;  phi = [y_i^2/sqrt(K) ; sqrt(2/K) y_i y_j, i < j]", Op::rebased,
                  "feature_map_rebased", {gamma, beta}),
      dpfp_map(),
      cosformer_map(),
      feature_map("feature-t2r", "T2R's learned map", "Kasai et al. 2021, arXiv 2103.13076", "phi = relu(W x + b)",
                  Op::t2r, "feature_map_t2r", learned_map()),
      feature_map("feature-hedgehog-exp", "Hedgehog, exponential", hedgehog,
                  "z = W x + b ;  phi = [exp(z) ; exp(-z)]", Op::hedgehog_exp, "feature_map_hedgehog_exp",
                  learned_map()),
      feature_map("feature-hedgehog-softmax", "Hedgehog, softmax", hedgehog, "z = W x + b ;  phi = softmax([z ; -z])",
                  Op::hedgehog_softmax, "feature_map_hedgehog_softmax", learned_map()),
      feature_map("feature-hedgehog-softmax2", "Hedgehog, sharper softmax", hedgehog,
                  "z = W x + b ;  phi = softmax([2 z ; -2 z])", Op::hedgehog_softmax2,
                  "feature_map_hedgehog_softmax2", learned_map()),
      feature_map("feature-favor", "Performer's positive random features", performer,
                  "u = x/K^(1/4) ;  phi = M^(-1/2) (exp(W u - |u|^2/2) + 1e-4)", Op::favor, "feature_map_favor",
                  {shared_matrix()}),
      feature_map("feature-favor-relu", "Performer's ReLU features", performer,
                  "u = x/K^(1/4) ;  phi = relu(W u) + 1e-3", Op::favor_relu, "feature_map_favor_relu",
                  {shared_matrix(Range::normal)}),
      feature_map("feature-rfa", "Random Fourier features", "Peng et al. 2021, arXiv 2103.02143",
                  "phi = M^(-1/2) [sin(W x) ; cos(W x)]", Op::rfa, "feature_map_rfa", {shared_matrix()}),
      feature_map("feature-dijiang", "DiJiang's frequency map", "Chen et al. 2024, arXiv 2403.19928",
                  "phi = softmax(x P)", Op::dijiang, "feature_map_dijiang",
                  {{"P", "K M", "fixed matrix, shared by heads", Range::normal}}),
      polynomial_map(),
      with_eps(norm("l2-norm", "Length one", "y = x / sqrt(sum x^2 + eps)", Op::unit_norm, 1e-6, "qk_norm_l2")),
      with_eps(norm("l2-norm-clamped", "Length one, clamped", "y = x / max(|x|, eps)", Op::unit_norm_clamp, 1e-12,
                    "qk_norm_l2_clamp")),
      with_eps(norm("rms-norm", "RMS norm", "y = x / sqrt(mean x^2 + eps) w", Op::rms_norm_weighted, 1e-6,
                    "qk_norm_rms", {weight()})),
      with_eps(norm("layer-norm", "Layer norm", "y = (x - mean) / sqrt(var + eps) w + b", Op::layer_norm, 1e-5,
                    "qk_norm_layernorm", {weight(), {"b", "K", "bias, shared by heads", Range::normal}})),
      norm("sum-norm", "Sum one", "y = x / sum x", Op::sum_norm, 0, "qk_norm_sum"),
      gated_norm(false),
      gated_norm(true),
      rotary(),
      short_convolution(),
  };
  for (Declaration& d : all)
    if (d.info.name == "sum-norm")
      d.info.inputs[0].range = Range::positive, d.info.traps = {"For positive features; zero where the sum is zero."};
  return all;
}

}  // namespace ttr::zoo
