// Miras: a linear memory with another loss than the squared one, or kept near to itself in another way than by length.
// Moneta: powers; Yaad: Huber; Memora: KL retention.
//
//   Moneta  W = A / |A|_q^(q-2) ;  e = W'k - v ;  A <- exp(g) A - eta k (p sign(e) |e|^(p-1))' ;  o = W'q
//   Yaad    e = S'k - v ;  S <- exp(g) S - eta k r(e)' ;  o = S'q
//           r = e, beyond delta:  delta e/|e| (huber), each channel clipped (coordinate), delta sign(e) (sign)
//   Memora  W = c softmax(A) over all entries ;  e = W'k - v ;  A <- exp(g) A - eta k e' ;  o = W'q
//           which is W <- c softmax(alpha log W - eta k e'), alpha = exp(g): log W and A differ by one number for all
//           entries, and a softmax does not see that
//
// q, k [B,T,G,K], v [B,T,H,V]. The gradient is taken before the decay. Source: Behrouz et al. 2025, arXiv 2504.13173.
#include "families/network/neural/options.h"
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

using prepare::Op;

Declaration of_steps() {
  Declaration d;
  d.info.paper = "Behrouz, Razaviyayn, Zhong, Mirrokni 2025, arXiv 2504.13173";
  d.info.scale = "none";
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"g", "B T H", "log of the factor on the memory", Range::log_gate},
                   {"eta", "B T H", "step", Range::rate}};
  d.info.outputs = {output()};
  d.prepare = {{Op::one_minus_exp, {"g"}, "lam"}};
  return d;
}

}  // namespace

Declaration moneta() {
  Declaration d = of_steps();
  d.info.name = "moneta";
  d.info.recipe = "equal / linear / sgd(beta, shrink, qnorm=4) | lp(3)";
  d.info.title = "Moneta";
  d.info.equation = "W = A / |A|_q^(q-2) ;  A <- exp(g) A - eta k (p sign(e) |e|^(p-1))' , e = W'k - v ;  o = W'q";
  d.info.traps = {"A = 0 has no W: a fresh state is a fixed draw, not zero.",
                  "The gradient is that of |e|_p^p, not divided by p."};
  d.feeds = {{"beta", "eta"}};
  d.info.settings = {{"power", "p of the loss", ""},
                     {"qnorm", "q of the norm of the memory", ""},
                     {"depth", "matrices of the memory; 1 = linear", ""},
                     {"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.variants = {{"power=4,qnorm=3"}};
  d.info.golden = {{"miras_moneta", {{"A0", "state.S"}, {"At", "state.S"}}, {{"power", "@p"}, {"qnorm", "@q_norm"}}}};
  return d;
}

Declaration yaad() {
  Declaration d = of_steps();
  d.info.name = "yaad";
  d.info.recipe = "equal / linear / sgd(beta, shrink) | huber(c)";
  d.info.title = "Yaad";
  d.info.equation = "S <- exp(g) S - eta k r' ,  r = e if |e| <= delta else delta e/|e| , e = S'k - v ;  o = S'q";
  d.info.traps = {"The paper's update beyond the threshold is delta sign(e), which jumps there: loss=sign."};
  d.info.inputs.push_back({"delta", "B T H", "threshold of the error", Range::positive});
  d.feeds = {{"beta", "eta"}, {"c", "delta"}};
  d.info.settings = {
      {"loss", "huber, coordinate (every channel alone), sign (jumps at the threshold) or squared", ""},
      {"depth", "matrices of the memory; 1 = linear", ""},
      {"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.variants = {{"loss=coordinate"}, {"depth=2"}};
  d.info.golden = {{"miras_yaad", {{"h0", "state.S"}, {"ht", "state.S"}}, {}},
                   {"miras_yaad_coord", {{"h0", "state.S"}, {"ht", "state.S"}}, {{"loss", "coordinate"}}},
                   {"miras_yaad_l1", {{"h0", "state.S"}, {"ht", "state.S"}}, {{"loss", "sign"}}}};
  d.refuses_stream = [](const std::map<std::string, std::string>& settings) -> std::string {
    const auto loss = settings.find("loss");
    return loss != settings.end() && loss->second == "sign"
               ? " has no recipe for loss=sign, and a stream runs a recipe: take huber or coordinate"
               : "";
  };
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    const auto loss = settings.find("loss");
    layer.options_of<families::NeuralOptions>().sign_loss = loss != settings.end() && loss->second == "sign";
  };
  return d;
}

Declaration memora() {
  Declaration d = of_steps();
  d.info.name = "memora";
  d.info.recipe = "equal / linear / sgd(beta, shrink, mirror=softmax)";
  d.info.title = "Memora";
  d.info.equation = "W <- c softmax(exp(g) log W - eta k e') , e = W'k - v ;  o = W'q";
  d.info.traps = {
      "The softmax goes over all entries of the matrix: they are positive and their sum is c, the setting radius. "
      "With "
      "c = 1 the answers are means of the queries' entries, as small as 1/V.",
      "The state is A = log W, up to a number that all entries share: zero is the matrix of equal entries, not of "
      "zeros.",
      "The paper's memory is a network of two matrices (depth=2), each with a softmax of its own."};
  d.feeds = {{"beta", "eta"}};
  d.info.settings = {{"radius", "c, the sum of the entries of the memory", ""},
                     {"depth", "matrices of the memory; 1 = linear", ""},
                     {"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.variants = {{"radius=6"}, {"depth=2,radius=4"}};
  d.info.golden = {{"miras_memora", {{"A0", "state.S"}, {"At", "state.S"}}, {{"radius", "@radius"}}}};
  return d;
}

}  // namespace ttr::zoo
