// Recursive least squares: the exact minimiser after every token.
//
//   S_t = argmin 1/2 sum_i w_i |v_i - S'k_i|^2 (+ ridge/2 |S|^2) ;   o_t = S_t' q_t
//   with a ridge:  H_t = a H_{t-1} + beta k k' ,  F_t = a F_{t-1} + beta k v' ,  S_t = (H_t + ridge I)^-1 F_t
//
// Without a ridge the minimum-norm answer while there are fewer independent keys than K. The ridge is constant, it is
// not forgotten, or fades with the pairs. By woodbury: P_0 = I / ridge , gain = P k / (a / beta + k'P k) ,
// S += gain (v - S'k)' , P = (P - gain (P k)') / a.
// variance_t = 1 + q_t' (H_t + ridge I)^-1 q_t (not by woodbury). Source: Haykin; test-time regression Eq. 11-15.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration rls() {
  Declaration d;
  d.info.name = "rls";
  d.info.recipe = "equal / linear / exact";
  d.info.title = "Recursive least squares";
  d.info.paper = "Plackett 1950; Haykin, Adaptive Filter Theory; Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 11-15";
  d.info.equation = "S_t = (sum_i w_i k_i k_i' + ridge I)^-1 sum_i w_i k_i v_i' ;  o_t = S_t' q_t";
  d.info.scale = "none";
  d.info.traps = {
      "Around t = K the answer without a ridge has a large error (double descent): give a ridge unless minimum norm "
      "is wanted.",
      "The ridge here is constant; the ridge of the textbook recursion P_0 = I/ridge fades with the forgetting "
      "factor. By that recursion (woodbury) gates of -20 in a row cost all digits without a word, and stronger "
      "forgetting makes P overflow; the rotations do neither.",
      "Without a ridge, or with one that fades, directions of keys whose pairs have faded to less than 5e-26 of the "
      "weight of others (gates that add up to -58) are lost in their rounding, in float and in double alike, and the "
      "answer is the one of least norm without them; Plan::diagnose counts them. A ridge that does not fade loses "
      "none.",
      "Without a ridge a query outside the span of the keys has known = 0: the variance says how much the answer "
      "scatters, and nothing about how wrong it is."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"g", "B T H", "log of the forgetting factor (with decay=input)", Range::log_gate},
                   {"beta", "B T H", "importance of the pair (with importance=input)", Range::sigmoid},
                   {"ridge", "H", "ridge (with ridge=input)", Range::positive}};
  d.info.outputs = {output(), variance(), known()};
  d.info.variants = {{"ridge=input"},
                     {"ridge=0.1,decay=0.9"},
                     {"ridge=input,decay=input,importance=input"},
                     {"ridge=key"},
                     {"ridge=0.1,decay=0.9,ridge_kind=fading"},
                     {"solver=woodbury,ridge=input,importance=input"}};
  d.info.settings = {
      {"ridge", "a constant ridge; 0 = minimum norm; input = a tensor [H]; key = a tensor [H,K]", "0.001"},
      {"decay", "forgetting factor in (0, 1]; input = a log gate per token", ""},
      {"importance", "input: a weight per pair", ""},
      {"ridge_kind", "absolute: constant; fading: forgotten like a pair before the first", ""},
      {"solver",
       "auto: rotations; sums and a Cholesky factor for a ridge that is an input or does not fade with the pairs; "
       "woodbury: by the covariance P, for a ridge that fades (states S and P)",
       "", true},
      {"keys", "raw, unit or rms: norm of q and k", ""}};
  d.info.golden = {
      {"rls_minnorm", {{"ht", "answer"}}, {}},
      {"rls_ridge",
       {{"lam", "ridge"}, {"hkk0", "state.H~"}, {"hkk", "state.H"}, {"hkv0", "state.F"}, {"hkv", "state.F"}},
       {{"ridge", "input"}}},
      {"rls_gated",
       {{"lam", "ridge"}, {"hkk0", "state.H~"}, {"hkk", "state.H"}, {"hkv0", "state.F"}, {"hkv", "state.F"}},
       {{"ridge", "input"}, {"decay", "input"}, {"importance", "input"}}},
      {"rls_woodbury",
       {{"eps", "ridge"}, {"h0", "state.S"}, {"ht", "state.S"}, {"P0", "state.P~"}, {"Pt", "state.P"}},
       {{"solver", "woodbury"},
        {"ridge", "?eps:1"},
        {"ridge_kind", "fading"},
        {"decay", "input"},
        {"importance", "input"}}}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    if (word_setting(layer, settings, "solver", {"auto", "woodbury"}) == "auto") return;
    const auto ridge = settings.find("ridge"), kind = settings.find("ridge_kind");
    if (ridge == settings.end() || ridge->second == "0")
      throw Error("rls by woodbury starts from P = I / ridge; give a ridge above 0", "setting solver");
    if (settings.contains("decay") && (kind == settings.end() || kind->second != "fading"))
      throw Error("rls by woodbury forgets its ridge with the pairs; give ridge_kind=fading, or no decay",
                  "setting solver");
    layer.family = &families::woodbury_family;
  };
  return d;
}

}  // namespace ttr::zoo
