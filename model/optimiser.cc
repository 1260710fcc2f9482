// Optimisers (ttr/optimiser.h has the formulas).
#include "ttr/optimiser.h"

#include <algorithm>
#include <cmath>

#include "model/gemm.h"
#include "model/ops.h"
#include "model/orthogonal.h"
#include "model/text.h"
#include "threads/pool.h"

namespace ttr::model {
namespace {

template <class Visit>
void optimiser_fields(Visit&& visit, auto& c) {
  visit("method", c.method);
  visit("rate", c.rate);
  visit("decay", c.decay);
  visit("beta1", c.beta1);
  visit("beta2", c.beta2);
  visit("eps", c.eps);
  visit("momentum", c.momentum);
  visit("nesterov", c.nesterov);
  visit("statistics", c.statistics);
  visit("every", c.every);
  visit("longest", c.longest);
  visit("damping", c.damping);
  visit("graft", c.graft);
  visit("groups", c.groups);
  visit("schedule", c.schedule);
  visit("warmup", c.warmup);
  visit("steps", c.steps);
  visit("last", c.last);
  visit("clip", c.clip);
  visit("ema", c.ema);
}

void check_optimiser(const OptimiserConfig& c) {
  const auto need = [](bool holds, const char* key, double value, const char* range) {
    if (!holds) throw Error(std::string(key) + " is " + number_text(value) + "; it is " + range, key);
  };
  const bool shampoo = c.method == "shampoo";
  if (c.method != "adamw" && c.method != "sgd" && c.method != "muon" && c.method != "soap" && !shampoo)
    throw Error("method is '" + c.method + "'; it is adamw, sgd, muon, soap or shampoo", "method");
  if (c.graft != "adam" && c.graft != "sgd" && c.graft != "none")
    throw Error("graft is '" + c.graft + "'; it is adam, sgd or none", "graft");
  if (c.schedule != "cosine" && c.schedule != "linear" && c.schedule != "constant")
    throw Error("schedule is '" + c.schedule + "'; it is cosine, linear or constant", "schedule");
  need(c.rate > 0, "rate", c.rate, "above 0");
  need(c.decay >= 0, "decay", c.decay, "at least 0");
  need(c.beta1 >= 0 && c.beta1 < 1, "beta1", c.beta1, "at least 0 and below 1");
  need(c.beta2 >= 0 && c.beta2 < 1, "beta2", c.beta2, "at least 0 and below 1");
  need(c.eps > 0, "eps", c.eps, "above 0");
  need(c.momentum >= 0 && c.momentum < 1, "momentum", c.momentum, "at least 0 and below 1");
  need(c.statistics >= 0 && (c.statistics < 1 || (shampoo && c.statistics == 1)), "statistics", c.statistics,
       shampoo ? "from 0 to 1" : "at least 0 and below 1");
  need(c.damping > 0, "damping", c.damping, "above 0");
  need(c.every >= 1, "every", c.every, "at least 1");
  need(c.longest >= 1, "longest", c.longest, "at least 1");
  need(c.warmup >= 0, "warmup", c.warmup, "at least 0");
  need(c.steps >= 1, "steps", c.steps, "at least 1");
  need(c.last >= 0 && c.last <= 1, "last", c.last, "from 0 to 1");
  need(c.clip >= 0, "clip", c.clip, "at least 0");
  need(c.ema >= 0 && c.ema < 1, "ema", c.ema, "at least 0 and below 1");
}

}  // namespace

std::string to_string(const OptimiserConfig& config) {
  FieldWriter write;
  optimiser_fields(write, config);
  return write.text;
}

OptimiserConfig parse_optimiser(std::string_view text) {
  OptimiserConfig config;
  read_fields(text, "the optimiser", [&](auto&& visit) { optimiser_fields(visit, config); });
  return config;
}

double rate_at(const OptimiserConfig& c, std::int64_t step) {
  if (step < c.warmup) return c.rate * static_cast<double>(step + 1) / c.warmup;
  if (c.schedule == "constant") return c.rate;
  const double length = std::max(1, c.steps - c.warmup);
  const double at = std::min(1.0, static_cast<double>(step - c.warmup) / length);
  const double share = c.schedule == "linear" ? 1 - at : 0.5 * (1 + std::cos(3.141592653589793 * at));
  return c.rate * (c.last + (1 - c.last) * share);
}

// What the groups say about one parameter.
struct Pace {
  double rate = 1, decay = 0;
};

namespace {

bool fits(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (name.substr(0, star) != pattern.substr(0, star)) return false;
  for (std::size_t skip = star; skip <= name.size(); ++skip)
    if (fits(pattern.substr(star + 1), name.substr(skip))) return true;
  return false;
}

struct Group {
  std::string pattern;
  double rate = 1, decay = -1;  // a decay below 0: not given
};
std::vector<Group> parse_groups(std::string_view text) {
  std::vector<Group> groups;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    const std::string one = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.empty()) continue;
    const std::size_t colon = one.find(':');
    if (colon == std::string::npos || colon == 0)
      throw Error("the group '" + one + "' has no pattern; write pattern: rate=0.1, decay=0", "groups");
    Group group;
    group.pattern = trimmed(one.substr(0, colon));
    for (const auto& [key, value] : parse_settings(one.substr(colon + 1), "groups")) {
      const double number = real_number(key, value);
      if (key != "rate" && key != "decay")
        throw Error("the group '" + group.pattern + "' has no '" + key + "'; it has rate and decay", "groups");
      if (number < 0)
        throw Error(key + " of the group '" + group.pattern + "' is " + value + "; it is at least 0", "groups");
      (key == "rate" ? group.rate : group.decay) = number;
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

// One matrix of a parameter: columns `column` .. of a tensor with `stride` columns.
struct MatrixPart {
  std::size_t offset;
  Size rows, columns, stride;
  Pace pace;
};

template <class T>
struct TTR_HIDDEN Optimiser<T>::Body {
  OptimiserConfig config;
  int threads;
  std::int64_t taken = 0;
  std::size_t total = 0;
  struct Paced {
    Parameter parameter;
    Pace pace;
  };
  std::vector<Paced> elementwise;    // adamw or sgd
  std::vector<Paced> parameters;     // all that are trained
  std::vector<MatrixPart> matrices;  // muon, soap or shampoo
  Buffer<T> first, second;           // moments, or momentum; in the order of the parameters
  Buffer<T> left, right;             // soap, shampoo: L and R of all matrices
  Buffer<T> q_left, q_right;         // soap: their eigenvectors; shampoo: their inverse roots
  Buffer<T> mean;
  Buffer<T> work;
  Gemm<T> gemm;
  Gemm<double> exact_gemm;
  std::vector<double> exact;  // eigenvectors and roots are found in double

  Body(std::span<const Parameter> all, const OptimiserConfig& how, int thread_count, bool is_part)
      : config(how),
        threads(thread_count == 0 ? threads::available() : thread_count),
        gemm(threads),
        exact_gemm(threads) {
    const bool matrix_method = how.method == "muon" || how.method == "soap" || how.method == "shampoo";
    const std::vector<Group> groups = parse_groups(how.groups);
    std::vector<bool> used(groups.size());
    Size left_size = 0, right_size = 0, largest = 0;
    for (const Parameter& p : all) {
      total = std::max(total, p.offset + (p.size + 15) / 16 * 16);
      if (!p.trained) continue;
      Pace pace{1, p.matrix ? how.decay : 0};
      for (std::size_t i = 0; i < groups.size(); ++i)
        if (fits(groups[i].pattern, p.name)) {
          used[i] = true, pace.rate = groups[i].rate;
          if (groups[i].decay >= 0) pace.decay = groups[i].decay;
        }
      parameters.push_back({p, pace});
      if (!matrix_method || !p.matrix || p.extent.size() != 2 || (how.method == "muon" && p.embedding)) {
        elementwise.push_back({p, pace});
        continue;
      }
      const Size rows = p.extent[0], stride = p.extent[1];
      Size column = 0;
      for (const int width : p.columns.empty() ? std::vector<int>{static_cast<int>(stride)} : p.columns) {
        MatrixPart part{p.offset + static_cast<std::size_t>(column), rows, width, stride, pace};
        matrices.push_back(part);
        column += width;
        largest = std::max(largest, rows * width);
        if (turns(rows)) left_size += rows * rows;
        if (turns(width)) right_size += static_cast<Size>(width) * width;
        const Size small = std::min<Size>(rows, width);
        largest = std::max({largest, small * small});
        gemm.reserve(rows, std::max<Size>(rows, width)), gemm.reserve(width, std::max<Size>(rows, width));
      }
    }
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (!used[i] && !is_part) {
        std::string names;
        for (const Paced& one : parameters) (names += names.empty() ? "" : ", ") += one.parameter.name;
        throw Error("the pattern '" + groups[i].pattern + "' of the groups fits no parameter; there are " + names,
                    "groups");
      }
    first = Buffer<T>(static_cast<Size>(total));
    if (how.method != "sgd") second = Buffer<T>(static_cast<Size>(total));
    if (how.method == "soap" || how.method == "shampoo") {
      left = Buffer<T>(left_size), right = Buffer<T>(right_size);
      q_left = Buffer<T>(left_size), q_right = Buffer<T>(right_size);
    }
    work = Buffer<T>(5 * largest);
    if (how.ema > 0) mean = Buffer<T>(static_cast<Size>(total));
  }

  bool turns(Size side) const {
    return (config.method == "soap" || config.method == "shampoo") && side <= config.longest;
  }

  // body(begin, end, pace) on pieces of the parameters that are stepped element by element.
  template <class Piece>
  void over(const std::vector<Paced>& list, Piece&& piece) {
    constexpr std::size_t length = 1 << 14;
    for (const auto& [p, pace] : list)
      threads::for_each(threads, static_cast<int>((p.size + length - 1) / length),
                        [&, &p = p, &pace = pace](int i, int) {
                          const std::size_t begin = p.offset + static_cast<std::size_t>(i) * length;
                          piece(begin, std::min(begin + length, p.offset + p.size), pace);
                        });
  }

  std::vector<double> squares(const T* g) const {
    std::vector<double> sums;
    for (const auto& [p, pace] : parameters) {
      double sum = 0;
      for (std::size_t i = p.offset; i < p.offset + p.size; ++i)
        sum += static_cast<double>(g[i]) * static_cast<double>(g[i]);
      sums.push_back(sum);
    }
    return sums;
  }

  void adamw(T* w, const T* g, T factor, double rate, std::int64_t t) {
    const T b1 = static_cast<T>(config.beta1), b2 = static_cast<T>(config.beta2), eps = static_cast<T>(config.eps);
    const T c1 = static_cast<T>(1 / (1 - std::pow(config.beta1, t))),
            c2 = static_cast<T>(1 / (1 - std::pow(config.beta2, t)));
    over(elementwise, [&](std::size_t begin, std::size_t end, const Pace& pace) {
      const T e = static_cast<T>(rate * pace.rate), d = static_cast<T>(pace.decay);
      T *const m = first.data(), *const v = second.data();
      for (std::size_t i = begin; i < end; ++i) {
        const T x = factor * g[i];
        m[i] = b1 * m[i] + (1 - b1) * x;
        v[i] = b2 * v[i] + (1 - b2) * x * x;
        w[i] -= e * (m[i] * c1 / (std::sqrt(v[i] * c2) + eps) + d * w[i]);
      }
    });
  }

  void sgd(T* w, const T* g, T factor, double rate) {
    const T mu = static_cast<T>(config.momentum);
    over(elementwise, [&](std::size_t begin, std::size_t end, const Pace& pace) {
      const T e = static_cast<T>(rate * pace.rate), d = static_cast<T>(pace.decay);
      T* const u = first.data();
      for (std::size_t i = begin; i < end; ++i) {
        const T x = factor * g[i] + d * w[i];
        u[i] = mu * u[i] + x;
        w[i] -= e * (config.nesterov ? x + mu * u[i] : u[i]);
      }
    });
  }

  void muon(T* w, const T* g, T factor, double rate) {
    const T mu = static_cast<T>(config.momentum);
    for (const MatrixPart& p : matrices) {
      const T e = static_cast<T>(rate * p.pace.rate), d = static_cast<T>(p.pace.decay);
      T* const x = work.data();
      double sum = 0;
      for (Size i = 0; i < p.rows; ++i)
        for (Size j = 0; j < p.columns; ++j) {
          const std::size_t at = p.offset + static_cast<std::size_t>(i * p.stride + j);
          T& u = first.data()[at];
          const T now = factor * g[at];
          u = mu * u + now;
          x[i * p.columns + j] = now + mu * u;
          sum += static_cast<double>(now + mu * u) * static_cast<double>(now + mu * u);
        }
      const Size size = p.rows * p.columns;
      orthogonalise(gemm, p.rows, p.columns, static_cast<T>(1 / (std::sqrt(sum) + 1e-7)), x, x + size);
      const T scale = static_cast<T>(0.2 * std::sqrt(static_cast<double>(std::max(p.rows, p.columns))));
      for (Size i = 0; i < p.rows; ++i)
        for (Size j = 0; j < p.columns; ++j) {
          T& value = w[p.offset + static_cast<std::size_t>(i * p.stride + j)];
          value -= e * (scale * x[i * p.columns + j] + d * value);
        }
    }
  }

  // What soap and shampoo keep of one matrix: whether its sides count, L and R, and what was made of them.
  struct Sides {
    bool lefts, rights;
    T *L, *R, *of_L, *of_R;
  };
  // body(part, rate, decay, sides) for every matrix.
  template <class Each>
  void over_matrices(double rate, Each&& each) {
    Size left_at = 0, right_at = 0;
    for (const MatrixPart& p : matrices) {
      const bool lefts = turns(p.rows), rights = turns(p.columns);
      each(p, static_cast<T>(rate * p.pace.rate), static_cast<T>(p.pace.decay),
           Sides{lefts, rights, left.data() + left_at, right.data() + right_at, q_left.data() + left_at,
                 q_right.data() + right_at});
      left_at += lefts ? p.rows * p.rows : 0, right_at += rights ? p.columns * p.columns : 0;
    }
  }

  // to [rows, columns] = Q_L' from Q_R, or with `back` Q_L from Q_R'; sides that do not turn are left as they are.
  void turn(const MatrixPart& p, const T* ql, const T* qr, bool back, const T* from, T* middle, T* to) {
    const Size r = p.rows, c = p.columns;
    if (!turns(r)) std::copy_n(from, r * c, middle);
    else if (back) gemm.nn(r, c, r, ql, r, from, c, 0, middle, c);
    else gemm.tn(r, c, r, ql, r, from, c, 0, middle, c);
    if (!turns(c)) std::copy_n(middle, r * c, to);
    else if (back) gemm.nt(r, c, c, middle, c, qr, c, 0, to, c);
    else gemm.nn(r, c, c, middle, c, qr, c, 0, to, c);
  }

  void soap(T* w, const T* g, T factor, double rate, std::int64_t t) {
    const T b = static_cast<T>(config.statistics);
    const T b1 = static_cast<T>(config.beta1), b2 = static_cast<T>(config.beta2), eps = static_cast<T>(config.eps);
    const T c1 = static_cast<T>(1 / (1 - std::pow(config.beta1, t))),
            c2 = static_cast<T>(1 / (1 - std::pow(config.beta2, t)));
    over_matrices(rate, [&](const MatrixPart& p, T e, T d, const Sides& sides) {
      const auto& [lefts, rights, L, R, QL, QR] = sides;
      const Size r = p.rows, c = p.columns, size = r * c;
      T *const x = work.data(), *const y = x + size, *const z = y + size, *const n = z + size;
      for (Size i = 0; i < r; ++i)
        for (Size j = 0; j < c; ++j) x[i * c + j] = factor * g[p.offset + static_cast<std::size_t>(i * p.stride + j)];
      if (t > 0) {
        turn(p, QL, QR, false, x, y, z);  // z = Q_L' g Q_R
        const auto at = [&](Size i, Size j) { return p.offset + static_cast<std::size_t>(i * p.stride + j); };
        for (Size i = 0; i < r; ++i)
          for (Size j = 0; j < c; ++j) {
            T &m = first.data()[at(i, j)], &v = second.data()[at(i, j)];
            m = b1 * m + (1 - b1) * x[i * c + j];
            v = b2 * v + (1 - b2) * z[i * c + j] * z[i * c + j];
            n[i * c + j] = m * c1;
          }
        turn(p, QL, QR, false, n, y, z);
        for (Size i = 0; i < r; ++i)
          for (Size j = 0; j < c; ++j) z[i * c + j] /= std::sqrt(second.data()[at(i, j)] * c2) + eps;
        turn(p, QL, QR, true, z, y, n);
        for (Size i = 0; i < r; ++i)
          for (Size j = 0; j < c; ++j) w[at(i, j)] -= e * (n[i * c + j] + d * w[at(i, j)]);
      }
      // L <- b L + (1-b) g g': the product with one of its factors scaled.
      for (Size i = 0; i < size; ++i) y[i] = (1 - b) * x[i];
      const bool now = t > 0 && t % config.every == 0;
      if (lefts) {
        for (Size i = 0; i < r * r; ++i) L[i] *= b;
        gemm.nt(r, r, c, y, c, x, c, 1, L, r);
        if (t == 0) eigenvectors(r, L, QL, exact);
        else if (now) iterate(r, L, QL, exact);
      }
      if (rights) {
        for (Size i = 0; i < c * c; ++i) R[i] *= b;
        gemm.tn(c, c, r, y, c, x, c, 1, R, c);
        if (t == 0) eigenvectors(c, R, QR, exact);
        else if (now) iterate(c, R, QR, exact);
      }
    });
  }

  // t from 1.
  void shampoo(T* w, const T* g, T factor, double rate, std::int64_t t) {
    const double b = config.statistics;
    const T keep = static_cast<T>(b), fresh = b < 1 ? static_cast<T>(1 - b) : T(1);
    const double mass = b < 1 ? 1 - std::pow(b, t) : 1;  // of the weights of L and R
    const T b1 = static_cast<T>(config.beta1), b2 = static_cast<T>(config.beta2), eps = static_cast<T>(config.eps);
    const T c1 = static_cast<T>(1 / (1 - std::pow(config.beta1, t))),
            c2 = static_cast<T>(1 / (1 - std::pow(config.beta2, t)));
    const bool now = (t - 1) % config.every == 0;
    over_matrices(rate, [&](const MatrixPart& p, T e, T d, const Sides& sides) {
      const auto& [lefts, rights, L, R, L_root, R_root] = sides;
      const Size r = p.rows, c = p.columns, size = r * c;
      T *const x = work.data(), *const y = x + size, *const z = y + size;
      const auto at = [&](Size i, Size j) { return p.offset + static_cast<std::size_t>(i * p.stride + j); };
      double grafted = 0, own = 0;
      for (Size i = 0; i < r; ++i)
        for (Size j = 0; j < c; ++j) {
          const T now_g = factor * g[at(i, j)];
          T &m = first.data()[at(i, j)], &v = second.data()[at(i, j)];
          m = b1 * m + (1 - b1) * now_g, v = b2 * v + (1 - b2) * now_g * now_g;
          x[i * c + j] = now_g, y[i * c + j] = fresh * now_g;
          const T step = config.graft == "adam" ? m * c1 / (std::sqrt(v * c2) + eps) : m * c1;
          grafted += static_cast<double>(step) * static_cast<double>(step);
        }
      const int order = lefts && rights ? 4 : 2;
      if (lefts) {
        for (Size i = 0; i < r * r; ++i) L[i] *= keep;
        gemm.nt(r, r, c, y, c, x, c, 1, L, r);
        if (now) inverse_root(exact_gemm, r, order, mass, config.damping, L, L_root, exact);
      }
      if (rights) {
        for (Size i = 0; i < c * c; ++i) R[i] *= keep;
        gemm.tn(c, c, r, y, c, x, c, 1, R, c);
        if (now) inverse_root(exact_gemm, c, order, mass, config.damping, R, R_root, exact);
      }
      for (Size i = 0; i < r; ++i)
        for (Size j = 0; j < c; ++j) x[i * c + j] = first.data()[at(i, j)] * c1;
      turn(p, L_root, R_root, false, x, y, z);  // the roots are symmetric
      for (Size i = 0; i < size; ++i) own += static_cast<double>(z[i]) * static_cast<double>(z[i]);
      const double scale = config.graft == "none" ? 1 : own > 0 ? std::sqrt(grafted / own) : 0;
      for (Size i = 0; i < r; ++i)
        for (Size j = 0; j < c; ++j) {
          T& value = w[at(i, j)];
          value -= e * (static_cast<T>(scale) * z[i * c + j] + d * value);
        }
    });
  }
};

template <class T>
Optimiser<T>::Optimiser(std::span<const Parameter> parameters, const OptimiserConfig& config, int threads,
                        bool part) {
  check_optimiser(config);
  body_ = std::make_unique<Body>(parameters, config, threads, part);
}
template <class T>
Optimiser<T>::~Optimiser() = default;
template <class T>
Optimiser<T>::Optimiser(Optimiser&&) noexcept = default;

template <class T>
std::vector<double> Optimiser<T>::squares(std::span<const T> gradients) const {
  return body_->squares(gradients.data());
}

template <class T>
double Optimiser<T>::step(std::span<T> values, std::span<const T> gradients) {
  double sum = 0;
  if (gradients.size() >= body_->total)
    for (const double one : squares(gradients)) sum += one;
  return step(values, gradients, std::sqrt(sum));
}

template <class T>
double Optimiser<T>::step(std::span<T> values, std::span<const T> gradients, double length) {
  Body& b = *body_;
  if (values.size() < b.total || gradients.size() < b.total)
    throw Error("the optimiser was made for " + std::to_string(b.total) + " numbers and got " +
                    std::to_string(std::min(values.size(), gradients.size())),
                "optimiser");
  T* const w = values.data();
  const T* const g = gradients.data();
  if (b.mean.size() && b.taken == 0) std::copy_n(w, b.total, b.mean.data());
  if (!std::isfinite(length)) return length;
  const T factor = b.config.clip > 0 && length > b.config.clip ? static_cast<T>(b.config.clip / length) : T(1);
  const double rate = rate_at(b.config, b.taken);
  if (b.config.method == "sgd") b.sgd(w, g, factor, rate);
  else b.adamw(w, g, factor, rate, b.taken + 1);
  if (b.config.method == "muon") b.muon(w, g, factor, rate);
  if (b.config.method == "soap") b.soap(w, g, factor, rate, b.taken);
  if (b.config.method == "shampoo") b.shampoo(w, g, factor, rate, b.taken + 1);
  ++b.taken;
  if (b.mean.size()) {
    const T keep = static_cast<T>(b.config.ema);
    T* const mean = b.mean.data();
    b.over(b.parameters, [&](std::size_t begin, std::size_t end, const Pace&) {
      for (std::size_t i = begin; i < end; ++i) mean[i] = keep * mean[i] + (1 - keep) * w[i];
    });
  }
  return length;
}

template <class T>
std::int64_t Optimiser<T>::steps_taken() const noexcept {
  return body_->taken;
}
template <class T>
void Optimiser<T>::set_steps_taken(std::int64_t steps) {
  body_->taken = steps;
}
template <class T>
const OptimiserConfig& Optimiser<T>::config() const noexcept {
  return body_->config;
}
template <class T>
std::span<const T> Optimiser<T>::mean() const noexcept {
  return {body_->mean.data(), static_cast<std::size_t>(body_->mean.size())};
}
template <class T>
std::vector<typename Optimiser<T>::Part> Optimiser<T>::state() {
  Body& b = *body_;
  std::vector<Part> parts;
  const auto add = [&](const char* name, Buffer<T>& buffer) {
    if (buffer.size()) parts.push_back({name, {buffer.data(), static_cast<std::size_t>(buffer.size())}});
  };
  add("first", b.first), add("second", b.second), add("left", b.left), add("right", b.right);
  add("q_left", b.q_left), add("q_right", b.q_right), add("mean", b.mean);
  return parts;
}

template class Optimiser<float>;
template class Optimiser<double>;

}  // namespace ttr::model
