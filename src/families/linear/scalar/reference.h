// The scalar-decay and delta recurrences and their gradients as literal loops in double, and the machinery to run the
// kernels on the same numbers in any layout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "families/linear/scalar/decay.h"
#include "families/linear/scalar/delta.h"

namespace ttr_test {

using ttr::Form;
using ttr::Simd;
using ttr::Status;
using ttr::View;
using ttr::Workspace;
using ttr::families::LinearGradient;
using ttr::families::LinearProblem;
using ttr::families::Residual;
using ttr::families::Sequence;
using Size = std::ptrdiff_t;
using Doubles = std::vector<double>;

enum class Kind { add, delta, undecayed };
enum class Layout { time_major, head_major, strided };
enum class Gates { none, mild, strong, constant };

struct Case {
  Kind kind = Kind::add;
  int B = 1, T = 7, H = 2, G = 2, K = 5, V = 3;
  Gates gates = Gates::mild;
  bool beta = true;
  std::vector<Size> packed = {};  // borders of packed sequences in row 0; empty: every row is one sequence
  Layout layout = Layout::time_major;
  unsigned seed = 1;

  std::vector<Sequence> sequences() const {
    std::vector<Sequence> list;
    if (packed.empty())
      for (int b = 0; b < B; ++b) list.push_back({b, 0, T});
    for (std::size_t n = 0; n + 1 < packed.size(); ++n) list.push_back({0, packed[n], packed[n + 1]});
    return list;
  }
  std::string name() const {
    const char* kinds[] = {"add", "delta", "undecayed"};
    return std::string(kinds[static_cast<int>(kind)]) + "-B" + std::to_string(B) + "-T" + std::to_string(T) + "-H" +
           std::to_string(H) + "-G" + std::to_string(G) + "-K" + std::to_string(K) + "-V" + std::to_string(V) +
           "-gates" + std::to_string(static_cast<int>(gates)) + "-seed" + std::to_string(seed);
  }
};

/// Numbers that float holds exactly, contiguous [B, T, heads, dim]; state [N, H, K, V].
struct Data {
  Doubles q, k, v, g, beta, S, d_o, d_S;
  double scale = 0.5;
};

inline Data draw_data(const Case& c) {
  std::mt19937 rng(c.seed);
  std::normal_distribution<float> normal;
  const auto draw = [&](Size n) {
    Doubles x(n);
    for (double& value : x) value = normal(rng);
    return x;
  };
  const Size tokens = Size{c.B} * c.T, N = static_cast<Size>(c.sequences().size());
  Data d;
  d.q = draw(tokens * c.G * c.K), d.k = draw(tokens * c.G * c.K), d.v = draw(tokens * c.H * c.V);
  for (Size i = 0; i < tokens * c.G; ++i) {
    double norm = 1e-6;
    for (int j = 0; j < c.K; ++j) norm += d.k[i * c.K + j] * d.k[i * c.K + j];
    for (int j = 0; j < c.K; ++j) d.k[i * c.K + j] = static_cast<float>(d.k[i * c.K + j] / std::sqrt(norm));
  }
  d.g = draw(tokens * c.H), d.beta = draw(tokens * c.H);
  const double strong[] = {0, -1e-3, -1, -50, -1e4, -std::numeric_limits<double>::infinity()};
  for (Size i = 0; i < tokens * c.H; ++i) {
    d.beta[i] = c.beta ? static_cast<float>(1 / (1 + std::exp(-d.beta[i]))) : 1.0;
    d.g[i] = static_cast<float>(-std::log1p(std::exp(-2 - d.g[i])));
    if (c.gates == Gates::strong) d.g[i] = static_cast<float>(strong[rng() % 6]);
    if (c.gates == Gates::constant) d.g[i] = static_cast<float>(-0.1 * double(i % c.H + 1));
    if (c.gates == Gates::none) d.g[i] = 0;
  }
  d.S = draw(N * c.H * c.K * c.V), d.d_o = draw(tokens * c.H * c.V), d.d_S = draw(N * c.H * c.K * c.V);
  return d;
}

struct Result {
  Doubles o, S;                             // forward
  Doubles d_q, d_k, d_v, d_g, d_beta, d_S;  // backward
};

/// The recurrence, token by token, and its reverse with every state kept.
inline Result reference(const Case& c, const Data& d) {
  const int H = c.H, G = c.G, K = c.K, V = c.V, group = H / G;
  Result r;
  r.o.assign(d.v.size(), 0), r.S = d.S, r.d_S = d.d_S;
  r.d_q.assign(d.q.size(), 0), r.d_k = r.d_q, r.d_v.assign(d.v.size(), 0), r.d_g.assign(d.g.size(), 0),
                               r.d_beta = r.d_g;
  const std::vector<Sequence> list = c.sequences();
  for (std::size_t n = 0; n < list.size(); ++n)
    for (int h = 0; h < H; ++h) {
      const Size row = list[n].row, begin = list[n].begin, end = list[n].end;
      double* const S = &r.S[(n * H + h) * K * V];
      double* const dS = &r.d_S[(n * H + h) * K * V];
      std::vector<Doubles> states = {Doubles(S, S + K * V)}, residuals;
      const auto token = [&](Size t) { return row * c.T + t; };
      const auto key = [&](Size t) { return (token(t) * G + h / group) * K; };
      const auto value = [&](Size t) { return (token(t) * H + h) * V; };
      for (Size t = begin; t < end; ++t) {
        const double *q = &d.q[key(t)], *k = &d.k[key(t)], *v = &d.v[value(t)];
        const double a = std::exp(d.g[token(t) * H + h]), beta = d.beta[token(t) * H + h];
        Doubles residual(V);
        for (int j = 0; j < V; ++j) {
          double read = 0;
          for (int i = 0; i < K; ++i) read += S[i * V + j] * k[i];
          residual[j] = v[j] - (c.kind == Kind::add ? 0 : c.kind == Kind::delta ? a * read : read);
          for (int i = 0; i < K; ++i) S[i * V + j] = a * S[i * V + j] + beta * k[i] * residual[j];
          for (int i = 0; i < K; ++i) r.o[value(t) + j] += S[i * V + j] * d.scale * q[i];
        }
        residuals.push_back(residual);
        states.emplace_back(S, S + K * V);
      }
      for (Size t = end; t-- > begin;) {
        const double *q = &d.q[key(t)], *k = &d.k[key(t)], *d_o = &d.d_o[value(t)];
        const Doubles &old = states[t - begin], &now = states[t - begin + 1], &residual = residuals[t - begin];
        const Size gate = token(t) * H + h;
        const double a = std::exp(d.g[gate]), beta = d.beta[gate];
        for (int j = 0; j < V; ++j) {
          double d_u = 0, read_factor = c.kind == Kind::delta ? a : c.kind == Kind::undecayed ? 1 : 0;
          for (int i = 0; i < K; ++i) {
            dS[i * V + j] += d.scale * q[i] * d_o[j];
            r.d_q[key(t) + i] += d.scale * now[i * V + j] * d_o[j];
            d_u += dS[i * V + j] * k[i];
            r.d_k[key(t) + i] += dS[i * V + j] * beta * residual[j];
          }
          r.d_beta[gate] += d_u * residual[j];
          r.d_v[value(t) + j] += beta * d_u;
          for (int i = 0; i < K; ++i) {
            const double read = k[i] * beta * d_u;
            r.d_k[key(t) + i] -= read_factor * old[i * V + j] * beta * d_u;
            // The state is used in a S and, for the delta rules, in read_factor S' k.
            r.d_g[gate] += a * old[i * V + j] * (dS[i * V + j] - (c.kind == Kind::delta ? read : 0));
            dS[i * V + j] = a * dS[i * V + j] - read_factor * read;
          }
        }
      }
    }
  return r;
}

/// A [B, T, heads, dim] tensor in some layout; memory between its elements is NaN.
template <class T>
struct Held {
  std::vector<T> memory;
  View<T, 4> view;
  Held(const Case& c, int heads, int dim, const Doubles* from) {
    const Size B = c.B, Tn = c.T, Hn = heads, D = dim;
    view.extent = {B, Tn, Hn, D};
    if (c.layout == Layout::time_major) view.stride = {Tn * Hn * D, Hn * D, D, 1};
    if (c.layout == Layout::head_major) view.stride = {Tn * Hn * D, D, Tn * D, 1};
    if (c.layout == Layout::strided) view.stride = {2 * D + 1, B * Hn * (2 * D + 1), B * (2 * D + 1), 2};
    memory.assign(static_cast<std::size_t>(B * Tn * Hn * (2 * D + 1) + 1), std::numeric_limits<T>::quiet_NaN());
    view.data = memory.data();
    for (Size i = 0; i < B * Tn * Hn * D; ++i) at(i) = from ? static_cast<T>((*from)[i]) : T(0);
  }
  Held(const Held&) = delete;
  T& at(Size i) {
    const Size D = view.extent[3], Hn = view.extent[2], Tn = view.extent[1];
    return view(i / (D * Hn * Tn), i / (D * Hn) % Tn, i / D % Hn, i % D);
  }
  Doubles doubles() {
    Doubles out(view.extent[0] * view.extent[1] * view.extent[2] * view.extent[3]);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = at(i);
    return out;
  }
  View<T, 3> three() const {
    return {view.data,
            {view.extent[0], view.extent[1], view.extent[2]},
            {view.stride[0], view.stride[1], view.stride[2]}};
  }
};

struct Call {
  Form form = Form::chunk;
  int chunk = 0;
  std::string target = "";
  bool backward = true, outputs = true;
  double poison = std::numeric_limits<double>::quiet_NaN();  // what the workspace holds before
};

template <class T>
std::vector<T> narrowed(const Doubles& x) {
  return std::vector<T>(x.begin(), x.end());
}

/// The kernel on the same numbers. `status` receives the first failure.
template <class T>
Result run(const Case& c, const Data& d, const Call& call, Status* status = nullptr) {
  namespace fam = ttr::families;
  Held<T> q(c, c.G, c.K, &d.q), k(c, c.G, c.K, &d.k), v(c, c.H, c.V, &d.v), g(c, c.H, 1, &d.g),
      beta(c, c.H, 1, &d.beta), o(c, c.H, c.V, nullptr), d_o(c, c.H, c.V, &d.d_o), d_q(c, c.G, c.K, nullptr),
      d_k(c, c.G, c.K, nullptr), d_v(c, c.H, c.V, nullptr), d_g(c, c.H, 1, nullptr), d_beta(c, c.H, 1, nullptr);
  const std::vector<Sequence> list = c.sequences();
  std::vector<T> S = narrowed<T>(d.S), constants(c.H), d_S = narrowed<T>(d.d_S), d_initial(S.size(), T(0));
  LinearProblem<T> p{list, c.H, c.G, c.K, c.V, static_cast<T>(d.scale), q.view, k.view, v.view, {}, {}, S.data(), {}};
  if (c.gates != Gates::none) p.g = g.three();
  if (c.gates == Gates::constant) {
    for (int h = 0; h < c.H; ++h)
      constants[h] = static_cast<T>(-0.1 * (h + 1)), constants[h] = static_cast<float>(constants[h]);
    p.g = {constants.data(), {c.B, c.T, c.H}, {0, 0, 1}};
  }
  if (c.beta) p.beta = beta.three();
  if (call.outputs) p.o = o.view;
  Size longest = 0;
  for (const Sequence& n : list) longest = std::max(longest, n.end - n.begin);
  const Simd<T>& simd = ttr::simd<T>(call.target);
  const Residual residual = c.kind == Kind::undecayed ? Residual::undecayed : Residual::decayed;
  const auto workspace = [&](bool backward) {
    const std::size_t bytes =
        c.kind == Kind::add ? fam::decay::workspace_bytes<T>(c.K, c.V, longest, call.form, call.chunk, backward)
                            : fam::delta::workspace_bytes<T>(c.K, c.V, longest, call.form, call.chunk, backward);
    std::vector<T> memory(bytes / sizeof(T) + 1, static_cast<T>(call.poison));
    memory.push_back(T(123));
    return memory;
  };
  Status worst = Status::ok;
  const auto note = [&](Status s) {
    if (worst == Status::ok) worst = s;
  };
  if (call.backward) {
    LinearGradient<T> grad{d_o.view, d_S.data(),  d_q.view,       d_k.view,
                           d_v.view, d_g.three(), d_beta.three(), d_initial.data()};
    std::vector<T> memory = workspace(true);
    const Workspace w{memory.data(), (memory.size() - 1) * sizeof(T)};
    note(c.kind == Kind::add ? fam::decay::backward(p, grad, call.form, call.chunk, simd, w)
                             : fam::delta::backward(p, grad, residual, call.form, call.chunk, simd, w));
    if (memory.back() != T(123) || S != narrowed<T>(d.S)) note(Status::out_of_memory);  // overrun, or a changed state
  }
  std::vector<T> memory = workspace(false);
  const Workspace w{memory.data(), (memory.size() - 1) * sizeof(T)};
  note(c.kind == Kind::add ? fam::decay::forward(p, call.form, call.chunk, simd, w)
                           : fam::delta::forward(p, residual, call.form, call.chunk, simd, w));
  if (memory.back() != T(123)) note(Status::out_of_memory);
  if (status) *status = worst;
  return {o.doubles(),      Doubles(S.begin(), S.end()),
          d_q.doubles(),    d_k.doubles(),
          d_v.doubles(),    d_g.doubles(),
          d_beta.doubles(), Doubles(d_initial.begin(), d_initial.end())};
}

/// max |got - want| / max |want|, infinite if a NaN or a size differs. The data are of size one: a tensor that is all
/// small is so by cancellation (one number, K = V = 1) and is held to the size of what cancelled.
inline double distance(const Doubles& got, const Doubles& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double error = 0, size = 0.3;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - want[i]) <= 1e300)) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(got[i] - want[i])), size = std::max(size, std::abs(want[i]));
  }
  return error / size;
}

/// The name of the first tensor that is further away than allowed, with the distance; empty if none is.
inline std::string differs(const Result& got, const Result& want, double forward, double backward, bool gradients) {
  const auto say = [](const char* name, double x) {
    return std::string(name) + " is off by " + std::to_string(x * 1e9) + "e-9";
  };
  if (const double x = distance(got.o, want.o); x > forward) return say("o", x);
  if (const double x = distance(got.S, want.S); x > forward) return say("S", x);
  if (!gradients) return "";
  if (const double x = distance(got.d_q, want.d_q); x > backward) return say("d_q", x);
  if (const double x = distance(got.d_k, want.d_k); x > backward) return say("d_k", x);
  if (const double x = distance(got.d_v, want.d_v); x > backward) return say("d_v", x);
  if (const double x = distance(got.d_g, want.d_g); x > backward) return say("d_g", x);
  if (const double x = distance(got.d_beta, want.d_beta); x > backward) return say("d_beta", x);
  if (const double x = distance(got.d_S, want.d_S); x > backward) return say("d_S", x);
  return "";
}

}  // namespace ttr_test
