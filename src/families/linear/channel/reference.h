// The recurrences with a gate for every channel (gated and dplr) and their gradients as literal loops in double, and
// the machinery to run the kernels on the same numbers in any layout. Tensors go by name, contiguous [B, T, heads,
// dim]; states are [N, H, K, V].
#pragma once

#include <map>
#include <string>
#include <vector>

#include "families/linear/channel/dplr.h"
#include "families/linear/channel/gated.h"
#include "families/linear/scalar/reference.h"

namespace ttr_test {

using ttr::families::DplrGradient;
using ttr::families::DplrProblem;
using ttr::families::GatedGradient;
using ttr::families::GatedProblem;

using Tensors = std::map<std::string, Doubles>;

/// Which parts the recurrence has; `reads` makes it dplr, otherwise it is gated.
struct Parts {
  bool reads = false, gk = true, gv = false, beta = true, before = false, bonus = false;
  bool a = false, b = false, decayed = false;
  const char* name = "";
};

enum class Strength { mild, strong, scalar, strong_scalar };  // scalar: one gate per head, a zero inner stride

struct VectorCase {
  Parts parts;
  Case shape;  // of which kind, gates and beta are not used
  Strength strength = Strength::mild;

  std::string name() const { return std::string(parts.name) + " " + shape.name(); }
  bool has(const std::string& tensor) const {
    const Parts& p = parts;
    return tensor == "gk"      ? p.gk
           : tensor == "gv"    ? p.gv
           : tensor == "beta"  ? p.beta
           : tensor == "bonus" ? p.bonus
           : tensor == "a"     ? p.a
           : tensor == "b"     ? p.b
                               : true;
  }
  int heads(const std::string& tensor) const { return tensor == "q" || tensor == "k" ? shape.G : shape.H; }
  int dim(const std::string& tensor) const {
    return tensor == "beta" ? 1 : tensor == "v" || tensor == "gv" || tensor == "o" ? shape.V : shape.K;
  }
};

inline const std::vector<std::string> kTokens = {"q", "k", "v", "gk", "gv", "beta", "a", "b"};

inline Tensors draw_vectors(const VectorCase& c, double scale = 0.5) {
  std::mt19937 rng(c.shape.seed);
  std::normal_distribution<float> normal;
  const Size tokens = Size{c.shape.B} * c.shape.T, states = static_cast<Size>(c.shape.sequences().size()) * c.shape.H;
  const auto draw = [&](Size n) {
    Doubles x(n);
    for (double& value : x) value = normal(rng);
    return x;
  };
  Tensors d;
  for (const std::string& name : kTokens) d[name] = draw(tokens * c.heads(name) * c.dim(name));
  const int K = c.shape.K, H = c.shape.H, group = H / c.shape.G;
  const auto unit = [&](Doubles& x, Size i) {
    double norm = 1e-6;
    for (int j = 0; j < K; ++j) norm += x[i * K + j] * x[i * K + j];
    for (int j = 0; j < K; ++j) x[i * K + j] /= std::sqrt(norm);
  };
  for (Size i = 0; i < tokens * c.shape.G; ++i) unit(d["k"], i);
  for (double& x : d["beta"]) x = 1 / (1 + std::exp(-x));
  for (Size i = 0; i < tokens * H; ++i) {
    // Steps that contract: a reads nearly what k (or -b) writes.
    unit(d["a"], i), unit(d["b"], i);
    const Size key = (i / H * c.shape.G + i % H / group) * K;
    for (int j = 0; j < K; ++j) {
      double &a = d["a"][i * K + j], &b = d["b"][i * K + j];
      if (!c.parts.b) a = d["k"][key + j] + 0.1 * a;
      b = -d["beta"][i] * a + 0.05 * b;
    }
  }
  const double strong[] = {0, -1e-3, -1, -50, -1e4, -std::numeric_limits<double>::infinity()};
  for (const char* name : {"gk", "gv"})
    for (std::size_t i = 0; i < d[name].size(); ++i) {
      double& g = d[name][i];
      g = c.strength == Strength::strong || c.strength == Strength::strong_scalar ? strong[rng() % 6]
                                                                                  : -std::log1p(std::exp(-2 - g));
      const std::size_t dim = static_cast<std::size_t>(c.dim(name));
      if (c.strength >= Strength::scalar) g = d[name][i / dim * dim];
    }
  d["bonus"] = draw(Size{H} * K);
  d["S"] = draw(states * K * c.shape.V), d["d_S"] = draw(states * K * c.shape.V);
  d["d_o"] = draw(tokens * H * c.shape.V);
  for (auto& [name, x] : d)
    for (double& value : x) value = static_cast<float>(value);
  for (const char* name : {"gk", "gv", "bonus"})
    if (!c.has(name)) std::fill(d[name].begin(), d[name].end(), 0.0);
  if (!c.parts.beta) std::fill(d["beta"].begin(), d["beta"].end(), 1.0);
  d["scale"] = {scale};
  return d;
}

/// Outputs "o", "S" and gradients "d_q" ..; those of absent inputs are there too, as the kernels are not asked for
/// them.
inline Tensors vector_reference(const VectorCase& c, const Tensors& d) {
  const int H = c.shape.H, G = c.shape.G, K = c.shape.K, V = c.shape.V;
  const Parts& parts = c.parts;
  const double scale = d.at("scale")[0];
  Tensors r;
  for (const std::string& name : kTokens) r["d_" + name].assign(d.at(name).size(), 0);
  r["d_bonus"].assign(d.at("bonus").size(), 0), r["o"].assign(d.at("v").size(), 0);
  r["S"] = d.at("S"), r["d_initial"] = d.at("d_S");
  const std::vector<Sequence> list = c.shape.sequences();
  for (std::size_t n = 0; n < list.size(); ++n)
    for (int h = 0; h < H; ++h) {
      const auto at = [&](const std::string& name, Size t) {
        const Size token = list[n].row * c.shape.T + t;
        const int heads = c.heads(name), head = heads == G ? h / (H / G) : h;
        return (token * heads + head) * c.dim(name);
      };
      const auto in = [&](const char* name, Size t) { return &d.at(name)[at(name, t)]; };
      const auto out = [&](const char* name, Size t) { return &r["d_" + std::string(name)][at(name, t)]; };
      // Without a the read key is k, whose head may be shared.
      const char* const read_name = parts.a ? "a" : "k";
      const double* const w = &d.at("bonus")[h * K];
      double* const S = &r["S"][(n * H + h) * K * V];
      double* const dS = &r["d_initial"][(n * H + h) * K * V];
      std::vector<Doubles> olds;
      for (Size t = list[n].begin; t < list[n].end; ++t) {
        const Doubles old(S, S + K * V);
        olds.push_back(old);
        const double *q = in("q", t), *k = in("k", t), *x = in(read_name, t), *b = in("b", t), beta = *in("beta", t);
        const double *gk = in("gk", t), *gv = in("gv", t), *values = in("v", t);
        double* const answer = &r["o"][at("v", t)];
        for (int j = 0; j < V; ++j) {
          double read = 0, self = 0;
          for (int i = 0; i < K; ++i) {
            S[i * V + j] *= std::exp(gk[i]) * std::exp(gv[j]);
            read += x[i] * (parts.decayed ? S[i * V + j] : old[i * V + j]);
            self += q[i] * w[i] * k[i];
          }
          const double v = values[j];
          const double u = beta * (parts.reads && !parts.b ? v - read : v);
          double& o = answer[j];
          for (int i = 0; i < K; ++i) {
            S[i * V + j] += k[i] * u + (parts.reads && parts.b ? b[i] * read : 0);
            o += scale * q[i] * (parts.before ? old[i * V + j] : S[i * V + j]);
          }
          o += scale * self * v;
        }
      }
      Doubles now(S, S + K * V);
      for (Size t = list[n].end; t-- > list[n].begin;) {
        const Doubles old = olds.back();
        olds.pop_back();
        const double *q = in("q", t), *k = in("k", t), *x = in(read_name, t), *b = in("b", t), beta = *in("beta", t);
        const double *gk = in("gk", t), *gv = in("gv", t), *values = in("v", t), *d_o = &d.at("d_o")[at("v", t)];
        double *d_q = out("q", t), *d_k = out("k", t), *d_v = out("v", t), *d_x = out(read_name, t),
               *d_b = out("b", t), *d_beta = out("beta", t), *d_gk = out("gk", t), *d_gv = out("gv", t),
               *d_w = &r["d_bonus"][h * K];
        for (int j = 0; j < V; ++j) {
          const double g_o = d_o[j] * scale, v = values[j], av = std::exp(gv[j]);
          double read = 0, self = 0, d_u = 0, d_read = 0;
          const auto faded = [&](int i) { return std::exp(gk[i]) * av * old[i * V + j]; };
          const auto seen = [&](int i) { return parts.decayed ? faded(i) : old[i * V + j]; };
          for (int i = 0; i < K; ++i) {
            read += x[i] * seen(i), self += q[i] * w[i] * k[i];
            if (!parts.before) dS[i * V + j] += q[i] * g_o;
            d_q[i] += g_o * (parts.before ? old[i * V + j] : now[i * V + j]) + g_o * v * w[i] * k[i];
            d_k[i] += g_o * v * w[i] * q[i];
            d_w[i] += g_o * v * q[i] * k[i];
          }
          const double u = parts.reads && !parts.b ? v - read : v;
          for (int i = 0; i < K; ++i) {
            d_u += dS[i * V + j] * k[i];
            d_k[i] += dS[i * V + j] * beta * u;
            if (parts.reads && parts.b) d_read += dS[i * V + j] * b[i], d_b[i] += dS[i * V + j] * read;
          }
          *d_beta += d_u * u;
          d_v[j] += beta * d_u + g_o * self;
          if (parts.reads && !parts.b) d_read = -beta * d_u;
          for (int i = 0; i < K; ++i) {
            if (parts.reads) d_x[i] += d_read * seen(i);
            const double d_faded = dS[i * V + j] + (parts.reads && parts.decayed ? x[i] * d_read : 0);
            d_gk[i] += d_faded * faded(i), d_gv[j] += d_faded * faded(i);
            dS[i * V + j] = std::exp(gk[i]) * av * d_faded;
            if (parts.reads && !parts.decayed) dS[i * V + j] += x[i] * d_read;
            if (parts.before) dS[i * V + j] += q[i] * g_o;
          }
        }
        now = old;
      }
    }
  return r;
}

/// The kernel on the same numbers. `status` receives the first failure.
template <class T>
Tensors run_vectors(const VectorCase& c, const Tensors& d, const Call& call, Status* status = nullptr) {
  namespace fam = ttr::families;
  const Case& shape = c.shape;
  const Parts& parts = c.parts;
  std::map<std::string, Held<T>> in, out;
  for (const std::string& name : kTokens) {
    in.try_emplace(name, shape, c.heads(name), c.dim(name), &d.at(name));
    out.try_emplace(name, shape, c.heads(name), c.dim(name), nullptr);
  }
  Held<T> o(shape, shape.H, shape.V, nullptr), d_o(shape, shape.H, shape.V, &d.at("d_o"));
  std::vector<T> S = narrowed<T>(d.at("S")), d_S = narrowed<T>(d.at("d_S")), bonus = narrowed<T>(d.at("bonus")),
                 d_initial(S.size(), T(0)), d_bonus(bonus.size(), T(0));
  const std::vector<Sequence> list = shape.sequences();
  const auto input = [&](const char* name) -> View<const T, 4> {
    if (!c.has(name)) return {};
    View<T, 4> view = in.at(name).view;
    if (name[0] == 'g' && c.strength >= Strength::scalar) view.stride[3] = 0;
    return view;
  };
  const auto wanted = [&](const char* name) -> View<T, 4> { return c.has(name) ? out.at(name).view : View<T, 4>{}; };
  fam::LinearProblem<T> p{list,       shape.H,    shape.G,    shape.K, shape.V, static_cast<T>(d.at("scale")[0]),
                          input("q"), input("k"), input("v"), {},      {},      S.data(),
                          {}};
  if (parts.beta) p.beta = in.at("beta").three();
  if (call.outputs) p.o = o.view;
  fam::LinearGradient<T> grad{d_o.view, d_S.data(), wanted("q"), wanted("k"), wanted("v"), {}, {}, d_initial.data()};
  if (parts.beta) grad.d_beta = out.at("beta").three();
  GatedProblem<T> gated{p, input("gk"), input("gv"), {}, parts.before};
  GatedGradient<T> d_gated{grad, wanted("gk"), wanted("gv"), {}};
  if (parts.bonus) {
    gated.bonus = ttr::view<const T>(bonus.data(), shape.H, shape.K);
    d_gated.d_bonus = ttr::view(d_bonus.data(), shape.H, shape.K);
  }
  const DplrProblem<T> dplr{p, input("gk"), input("a"), input("b"), parts.decayed};
  const DplrGradient<T> d_dplr{grad, wanted("gk"), wanted("a"), wanted("b")};
  Size longest = 0;
  for (const Sequence& n : list) longest = std::max(longest, n.end - n.begin);
  const Simd<T>& simd = ttr::simd<T>(call.target);
  Status worst = Status::ok;
  const auto with_workspace = [&](bool backward, const auto& kernel) {
    const std::size_t bytes =
        parts.reads ? fam::dplr::workspace_bytes<T>(shape.K, shape.V, longest, call.form, call.chunk, backward)
                    : fam::gated::workspace_bytes<T>(shape.K, shape.V, longest, call.form, call.chunk, backward);
    std::vector<T> memory(bytes / sizeof(T) + 1, static_cast<T>(call.poison));
    memory.push_back(T(123));
    const Status got = kernel(Workspace{memory.data(), (memory.size() - 1) * sizeof(T)});
    if (worst == Status::ok) worst = got;
    if (memory.back() != T(123)) worst = Status::out_of_memory;  // it wrote beyond its end
  };
  if (call.backward) {
    with_workspace(true, [&](Workspace w) {
      return parts.reads ? fam::dplr::backward(dplr, d_dplr, call.form, call.chunk, simd, w)
                         : fam::gated::backward(gated, d_gated, call.form, call.chunk, simd, w);
    });
    if (S != narrowed<T>(d.at("S"))) worst = Status::out_of_memory;  // the initial state is only read
  }
  with_workspace(false, [&](Workspace w) {
    return parts.reads ? fam::dplr::forward(dplr, call.form, call.chunk, simd, w)
                       : fam::gated::forward(gated, call.form, call.chunk, simd, w);
  });
  if (status) *status = worst;
  Tensors r;
  r["o"] = o.doubles(), r["S"] = Doubles(S.begin(), S.end());
  if (!call.backward) return r;
  for (const std::string& name : kTokens)
    if (c.has(name)) r["d_" + name] = out.at(name).doubles();
  if (parts.bonus) r["d_bonus"] = Doubles(d_bonus.begin(), d_bonus.end());
  r["d_initial"] = Doubles(d_initial.begin(), d_initial.end());
  return r;
}

/// The first tensor of `got` that is further from `want` than allowed; empty if none is. The chunk form has the
/// gradient of a gate as a difference of larger sums: twice the bound.
inline std::string differs(const Tensors& got, const Tensors& want, double forward, double backward) {
  for (const auto& [name, x] : got)
    if (const double off = distance(x, want.at(name)); !(off <= (name[0] != 'd'   ? forward
                                                                 : name[2] == 'g' ? 2 * backward
                                                                                  : backward)))
      return name + " is off by " + std::to_string(off * 1e9) + "e-9";
  return "";
}

}  // namespace ttr_test
