// The steps of families that solve: least squares in its several ways, and regressions near the query, whose state is
// the list of pairs itself.
#include <cmath>

#include "plan/builder.h"

namespace ttr {

int Builder::least_squares_step(int q, int k, int v, double scale) {
  Step step = kernel(KernelKind::least_squares, scale, q, k, v, log_fade(), importance());
  step.from[Role::ridge] = quantity(p_.design.solver.ridge, "ridge");
  StatePart h = memory_part(k, k, "H", "sum of w k k'"), f = memory_part(k, v, "F", "sum of w k v'");
  h.type = f.type = Type::f64;
  return kernel_step(std::move(step), "BTHV", {h, f});
}

// The answer of least norm, or a ridge that fades: a triangle by rotations, in double.
int Builder::givens_step(int q, int k, int v, double scale) {
  const Solver& s = p_.design.solver;
  Step step = kernel(KernelKind::givens, scale, q, k, v, log_fade(), importance());
  const bool fading = s.ridge_kind == Solver::RidgeKind::fading && s.ridge.given();
  if (fading) step.from[Role::ridge] = quantity(s.ridge, "ridge");
  StatePart r = memory_part(k, k, "R", "triangle, R'R = sum of w k k'"),
            z = memory_part(k, v, "Z", "R'Z = sum of w k v'"),
            share = memory_part(k, v, "share", "part of the ridge that is still there"),
            basis = memory_part(k, k, "basis", "orthonormal basis of the keys seen");
  share.info.shape = share.info.shape.substr(0, share.info.shape.size() - 2), share.extent.pop_back();
  std::vector<StatePart> parts = {r, z, share, basis};
  for (StatePart& part : parts)
    part.type = Type::f64, part.info.range = Range::fresh, part.info.differentiable = false;
  return kernel_step(std::move(step), "BTHV", parts);
}

// H, F and a solve with n steps, a ridge per token, or one relative to |H|.
int Builder::iterative_step(int q, int k, int v, double scale) {
  const Solver& s = p_.design.solver;
  const bool exact = s.kind == Solver::Kind::exact;
  Step step = kernel(exact ? KernelKind::iterative : KernelKind::stepped, scale, q, k, v, log_fade(), importance());
  step.from[Role::ridge] = quantity(s.ridge, "ridge");
  if (layer_) step.number = layer_->kernel_number;  // a tolerance
  if (p_.design.extras.blend) step.from[Role::blend] = canonical("blend");
  if (layer_ && produced("gh")) step.from[Role::g_mu] = operand("gh");
  StatePart h = memory_part(k, k, "H", "sum of w k k'"), f = memory_part(k, v, "F", "sum of w k v'");
  h.type = f.type = Type::f64;
  return kernel_step(std::move(step), "BTHV", {h, f});
}

int Builder::kalman_step(int q, int k, int v, double scale) {
  const Solver& s = p_.design.solver;
  Step step = kernel(KernelKind::kalman, scale, q, k, v);
  step.from[Role::process] = quantity(s.process, "process"), step.from[Role::noise] = quantity(s.noise, "noise");
  StatePart mean = memory_part(k, v), p = memory_part(k, k, "P", "covariance, shared by the value channels");
  mean.type = p.type = Type::f64, p.identity = true, p.fresh = 1;
  if (layer_) {
    step.also = add_value({"variance", "BTH", Value::From::step, -1, {}});
    stage_results_["variance"] = step.also;
  }
  return kernel_step(std::move(step), "BTHV", {mean, p});
}

// Least squares by its covariance: P_0 = diag(1 / ridge), which fades.
int Builder::woodbury_step(double scale) {
  const int q = normalised_keys("q"), k = normalised_keys("k"), v = canonical("v");
  Step step = kernel(KernelKind::woodbury, scale, q, k, v, log_fade(), importance());
  const Quantity& ridge = p_.design.solver.ridge;
  StatePart s = memory_part(k, v), p = memory_part(k, k, "P", "inverse of the sum of w k k' and the faded ridge");
  s.type = p.type = Type::f64, p.identity = true;
  if (ridge.is_constant()) {
    p.fresh = 1 / ridge.value;
  } else {  // P begins with the first token
    step.from[Role::ridge] = canonical("ridge");
    p_.counted = true, s.info.range = p.info.range = Range::fresh;
  }
  return kernel_step(std::move(step), "BTHV", {s, p});
}

// A Gaussian kernel through landmarks: rows of q and k, or means of stretches of q where k = q.
int Builder::landmarks_step() {
  const int q = canonical("q"), k = canonical("k"), v = canonical("v");
  Step step = kernel(KernelKind::landmarks, 1, q, k, v);
  step.number = layer_->kernel_number;
  return kernel_step(std::move(step), "BTHV", {});
}

// All pairs at once: a sum, or least squares.
int Builder::whole_step(int q, int k, int v, double scale) {
  Step step = kernel(KernelKind::whole, scale, q, k, v, -1, importance());
  const Solver& s = p_.design.solver;
  if (s.kind == Solver::Kind::exact) step.from[Role::ridge] = quantity(s.ridge, "ridge");
  return kernel_step(std::move(step), "BTHV", {});
}

// A ring of pairs, and sums that are down-dated.
int Builder::window_step(int q, int k, int v, double scale) {
  Step step = kernel(KernelKind::window, scale, q, k, v, log_fade(), importance());
  step.from[Role::ridge] = quantity(p_.design.solver.ridge, "ridge");
  p_.counted = true;
  const std::ptrdiff_t W = p_.design.weights.window, H = shape_.heads;
  p_.letters['W'] = static_cast<int>(W);
  const bool grouped = axes(k).find('G') != std::string::npos;
  const std::string letter(1, axes(k).back());
  std::vector<StatePart> parts = {
      {{"k", (grouped ? "B W G " : "B W H ") + letter, "keys, token n in slot n mod W"},
       {W, grouped ? shape_.key_heads : H, width(k)},
       type_},
      {{"v", "B W H V", "values"}, {W, H, shape_.value_dim}, type_},
      {{"gate", "B W H", "log gates"}, {W, H}, type_},
      {{"weight", "B W H", "importances"}, {W, H}, type_},
      memory_part(k, k, "H", "sum of w k k'"),
      memory_part(k, v, "F", "sum of w k v'"),
      {{"peak", "B H " + letter, "largest diagonal of H since it was made afresh"}, {H, width(k)}, type_}};
  for (std::size_t i = 4; i < parts.size(); ++i) parts[i].type = Type::f64;
  for (StatePart& part : parts) part.info.range = Range::fresh, part.info.differentiable = false;
  return kernel_step(std::move(step), "BTHV", parts);
}

double Builder::near_scale() const {
  const Weights& w = p_.design.weights;
  if (w.near_scale != 0) return w.near_scale;
  return options_.scale.value_or(1 / std::sqrt(static_cast<double>(shape_.key_dim)));
}

// The bandwidth of Gaussian weights; -1 for the exponential.
int Builder::bandwidth_of_weights() {
  const Weights& w = p_.design.weights;
  if (w.near != Kernel::gaussian) return -1;
  return w.bandwidth.given() ? quantity(w.bandwidth, "bandwidth")
                             : constant(2 * std::sqrt(static_cast<double>(shape_.key_dim)));
}

std::vector<StatePart> Builder::pairs_kept(int k, int v, bool gates) {
  p_.history = true;
  const std::ptrdiff_t G = shape_.key_heads;
  std::vector<StatePart> parts = {{{"k", "B N G K", "keys of the pairs kept, oldest first"}, {G, width(k)}, type_},
                                  {{"v", "B N G V", "values of the pairs kept"}, {G, width(v)}, type_}};
  if (gates) parts.push_back({{"g", "B N H", "log gates of the pairs kept"}, {shape_.heads}, type_});
  for (StatePart& part : parts) part.history = true;
  return parts;
}

int Builder::attention_step(int q, int k, int v) {
  const Weights& w = p_.design.weights;
  Step step = kernel(KernelKind::attention, near_scale(), q, k, v, log_fade());
  step.from[Role::bandwidth] = bandwidth_of_weights();
  if (w.sink) step.from[Role::sink] = canonical("sink");
  step.unnormalised = p_.design.solver.kind == Solver::Kind::gd;
  return kernel_step(std::move(step), "BTHV", pairs_kept(k, v, step.from[Role::g] >= 0));
}

int Builder::local_linear_step(int q, int k, int v) {
  const Solver& s = p_.design.solver;
  Step step = kernel(KernelKind::local_linear, near_scale(), q, k, v);
  step.from[Role::bandwidth] = bandwidth_of_weights();
  if (s.kind == Solver::Kind::given) step.from[Role::a] = canonical("r");
  else step.from[Role::ridge] = quantity(s.ridge, "ridge");
  step.absolute_ridge = s.ridge_kind == Solver::RidgeKind::absolute;
  return kernel_step(std::move(step), "BTHV", pairs_kept(k, v, false));
}

int Builder::path_attention_step(int q, int k, int v) {
  Step step = kernel(KernelKind::path_attention, near_scale(), q, k, v, log_fade(), canonical("beta_t"));
  step.from[Role::w] = canonical("w_t");
  std::vector<StatePart> parts = pairs_kept(k, v, step.from[Role::g] >= 0);
  const std::ptrdiff_t G = shape_.key_heads;
  StatePart w = {{"w", "B N G K", "Householder vectors of the pairs kept"}, {G, shape_.key_dim}, type_},
            beta = {{"beta", "B N G", "their steps"}, {G}, type_};
  w.history = beta.history = true;
  parts.insert(parts.begin() + 2, {w, beta});
  return kernel_step(std::move(step), "BTHV", parts);
}

int Builder::deltaformer_step(int q, int k, int v) {
  Step step = kernel(KernelKind::deltaformer, near_scale(), q, k, v, -1, quantity(p_.design.solver.step, "beta"));
  step.also = add_value({"", "BTHV", Value::From::step, -1, {}});  // what is kept of a value
  std::vector<StatePart> parts = pairs_kept(k, v, false);
  parts[1] = {{"u", "B N H V", "corrected values of the pairs kept"}, {shape_.heads, width(v)}, type_};
  parts[1].history = true;
  return kernel_step(std::move(step), "BTHV", parts);
}

int Builder::kernel_regression_step(int q, int k, int v) {
  const Memory& m = p_.design.memory;
  const double root = std::sqrt(static_cast<double>(shape_.key_dim));
  Step step = kernel(KernelKind::kernel_regression,
                     m.kernel_scale != 0 ? m.kernel_scale : options_.scale.value_or(1 / root), q, k, v);
  step.number = m.bandwidth.is_constant() ? m.bandwidth.value : 2 * root;
  step.from[Role::ridge] = quantity(p_.design.solver.ridge, "ridge");
  std::vector<StatePart> parts = pairs_kept(k, v, false);
  // With a window the factor has a fixed size and is kept, so that a step costs n^2 and not n^3.
  const std::ptrdiff_t W = p_.design.weights.window;
  if (W > 0 && W <= 2048 && p_.design.solver.ridge_per != Solver::RidgePer::token) {
    step.keeps_factor = true;
    const std::ptrdiff_t H = shape_.heads;
    p_.letters['F'] = static_cast<int>(W * (W + 1) / 2), p_.letters['W'] = static_cast<int>(W);
    std::vector<StatePart> kept = {
        {{"factor", "B H F", "rows of the Cholesky factor of the window", Range::fresh, false},
         {H, W * (W + 1) / 2},
         Type::f64},
        {{"solved", "B H W V", "the values behind the factor", Range::fresh, false}, {H, W, width(v)}, Type::f64},
        {{"factored", "B", "pairs in the factor", Range::fresh, false}, {}, Type::f64}};
    parts.insert(parts.end(), kept.begin(), kept.end());
  }
  return kernel_step(std::move(step), "BTHV", parts);
}

}  // namespace ttr
