// Weights and kernels as formulas.
#include "recipe/derive_parts.h"

namespace ttr::derivation {

using Per = Weights::Per;

std::string similarity(Kernel kernel, double scale, const Quantity& bandwidth, int degree, const std::string& x,
                       const std::string& y) {
  const std::string u = "\\lVert " + x + " - " + y + "\\rVert/" + number_or(bandwidth, "h");
  switch (kernel) {
    case Kernel::exponential:
      return "e^{" + (scale > 0 ? numeral(scale) : "s") + "\\, " + x + "^\\top " + y + "}";
    case Kernel::gaussian:
      return "e^{-\\lVert " + x + " - " + y + "\\rVert^2/" + number_or(bandwidth, "h") + "}";
    case Kernel::linear:
      return x + "^\\top " + y;
    case Kernel::polynomial:
      return "(1 + " + x + "^\\top " + y + ")^{" + std::to_string(degree) + "}";
    case Kernel::laplace:
      return "e^{-" + u + "}";
    case Kernel::matern32:
      return "(1 + a) e^{-a}|_{a=\\sqrt{3}" + u + "}";
    case Kernel::matern52:
      return "(1 + a + a^2/3) e^{-a}|_{a=\\sqrt{5}" + u + "}";
    case Kernel::epanechnikov:
      return "\\max(0, 1 - u^2)|_{u=" + u + "}";
    case Kernel::tricube:
      return "\\max(0, 1 - u^3)^3|_{u=" + u + "}";
    case Kernel::box:
      return "[" + u + "\\le 1]";
    case Kernel::nearest:
    case Kernel::none:
      break;
  }
  return "1";
}

std::string kernel_note(Kernel kernel, double scale, const Quantity& bandwidth) {
  if (kernel == Kernel::exponential) return scale <= 0 ? ", $s = 1/\\sqrt{K}$" : "";
  if (kernel == Kernel::nearest) return ", $N_n(q)$ the $n$ keys nearest to $q$";
  if (kernel == Kernel::linear || kernel == Kernel::polynomial) return "";
  if (!bandwidth.given()) return ", $h = 2\\sqrt{K}$";
  return bandwidth.is_input() ? ", $h$ the input bandwidth" : "";
}

std::vector<std::string> age_notes(const Weights& w) {
  std::vector<std::string> notes;
  if (w.power.is_input()) notes.push_back("$a$ the input exponent");
  if (w.given > 0 && !w.mask)
    notes.push_back("$\\omega_{t,j}$ the input w: the weight that token $t$ gives to the pair of age $j$");
  return notes;
}

std::string Symbols::weight() const {
  const Weights& w = d.weights;
  std::string out = importance("i");
  const std::string last = causal ? "t" : "N";  // from where the age of a pair is counted
  if (w.fade == Weights::Fade::decay)
    out += w.decay.is_constant() ? numeral(w.decay.value) + "^{" + last + "-i}\\," : "e^{g (" + last + "-i)}\\,";
  if (w.steady > 0) out += numeral(w.steady) + "^{" + last + "-i}\\,";
  const bool inside = w.near != Kernel::none && w.per == Per::key;  // the key fades inside the similarity
  if (w.fade == Weights::Fade::gate && !inside) out += "\\prod_{j=i+1}^{" + last + "} a_j\\,";
  if (w.near != Kernel::none) {
    const std::string k = w.transport ? "H_t \\cdots H_{i+1} k_i"
                          : inside    ? "(k_i\\odot\\prod_{j=i+1}^{" + last + "} a_j)"
                                      : "k_i";
    out += w.near == Kernel::nearest ? "[k_i\\in N_{" + std::to_string(w.neighbours) + "}(q_t)]\\,"
                                     : similarity(w.near, w.near_scale, w.bandwidth, 2, "q_t", k) + "\\,";
  }
  const std::string age = last + "-i";
  if (w.power.given()) out += "(" + age + "+1)^{-" + number_or(w.power, "a") + "}\\,";
  if (w.given > 0) out += w.mask ? "[\\mathrm{mask}_{t," + age + "}>0]\\," : "\\omega_{t," + age + "}\\,";
  if (w.levels) out += "\\lambda_t^{(\\ell(t,i))}\\,";
  if (out.empty()) return "1";
  return out.substr(0, out.size() - 2);  // without the last thin space
}

std::string Symbols::w(const std::string& i) const { return weight() == "1" ? "" : "w_{" + i + "}(t)\\, "; }

}  // namespace ttr::derivation
