// Generic properties of a kernel family, from one description of it: outputs and final states against a literal loop
// in double, gradients against central differences of that loop, every form, both types, strided tensors, packed
// sequences, calls split anywhere, scratch full of NaN.
//
// A family says
//   specs()                 its tensors and their extents (extent 1 = broadcast, seen by the kernel as stride 0)
//   sequences(), longest()
//   reference(values)       outputs and final states (under the names of the states) from inputs and initial states
//   bytes<T>, forward<T>(bound, ..), backward<T>(bound, gradients, ..)
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "families/common/linear.h"
#include "simd/simd.h"

namespace ttr_families_test {

using ttr::Form;
using ttr::Simd;
using ttr::Status;
using ttr::View;
using ttr::Workspace;
using ttr::families::Sequence;
using Size = std::ptrdiff_t;
using Doubles = std::vector<double>;
using Values = std::map<std::string, Doubles>;  // contiguous, by name

enum class Role { input, output, state, fixed };  // fixed: an input or state without a gradient

struct Spec {
  std::string name;
  Role role;
  std::vector<Size> extent;
  double shift = 0, size = 1;  // drawn as shift + size * normal
  bool contiguous() const { return role == Role::state || extent.size() < 3; }
};

inline Size count_of(const std::vector<Size>& extent) {
  Size n = 1;
  for (const Size e : extent) n *= e;
  return n;
}

/// Numbers that float holds exactly.
inline Values draw(const std::vector<Spec>& specs, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Values v;
  for (const Spec& s : specs) {
    Doubles& x = v[s.name];
    x.resize(count_of(s.extent));
    for (double& y : x) y = static_cast<float>(s.shift + s.size * normal(rng));
  }
  return v;
}

/// [B, T, H, ..] as it is; with gaps of NaN in every dimension; or with the heads before the time.
enum Layout { in_order, with_gaps, head_major };

/// One tensor in memory.
template <class T>
struct Held {
  std::vector<T> memory;
  std::vector<Size> extent, stride;
  Held() = default;
  Held(const std::vector<Size>& e, int layout) : extent(e), stride(e.size()) {
    const bool gaps = layout == with_gaps;
    Size step = gaps ? 2 : 1;
    for (std::size_t i = e.size(); i-- > 0;) {
      const std::size_t d = layout == head_major && (i == 1 || i == 2) ? 3 - i : i;
      stride[d] = step, step = step * e[d] + (gaps ? 1 : 0);
    }
    memory.assign(static_cast<std::size_t>(step + 1), std::numeric_limits<T>::quiet_NaN());
  }
  T& at(Size i) {
    Size offset = 0;
    for (std::size_t d = extent.size(); d-- > 0;) offset += i % extent[d] * stride[d], i /= extent[d];
    return memory[static_cast<std::size_t>(offset)];
  }
  void set(const Doubles& x) {
    for (std::size_t i = 0; i < x.size(); ++i) at(static_cast<Size>(i)) = static_cast<T>(x[i]);
  }
  Doubles get() {
    Doubles x(count_of(extent));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = at(static_cast<Size>(i));
    return x;
  }
};

template <class T>
struct Bound {
  std::map<std::string, Held<T>> held;
  std::vector<std::int64_t> counts;

  Bound(const std::vector<Spec>& specs, const Values* values, int layout) {
    for (const Spec& s : specs) {
      Held<T>& h = held[s.name] = Held<T>(s.extent, s.contiguous() ? in_order : layout);
      h.set(values && values->count(s.name) ? values->at(s.name) : Doubles(count_of(s.extent), 0.0));
    }
  }
  template <std::size_t N>
  View<T, N> view(const std::string& name) {
    View<T, N> v;
    if (!held.count(name)) return v;
    Held<T>& h = held[name];
    EXPECT_EQ(h.extent.size(), N) << name;
    v.data = h.memory.data();
    for (std::size_t d = 0; d < N; ++d) v.extent[d] = h.extent[d], v.stride[d] = h.extent[d] == 1 ? 0 : h.stride[d];
    return v;
  }
  T* pointer(const std::string& name) { return held.count(name) ? held[name].memory.data() : nullptr; }
};

struct Call {
  Form form = Form::recurrent;
  int chunk = 0;
  int layout = in_order;
  std::vector<Size> cuts = {};  // the call is split before these tokens
  std::string target = "";
  double scratch = std::numeric_limits<double>::quiet_NaN();  // what the workspace holds before the call
};

/// Sequences clipped to tokens [begin, end): others are empty, as in a streaming call.
inline std::vector<Sequence> clipped(const std::vector<Sequence>& all, Size begin, Size end) {
  std::vector<Sequence> list;
  for (Sequence n : all) {
    n.begin = std::clamp(n.begin, begin, end), n.end = std::clamp(n.end, begin, end);
    list.push_back(n);
  }
  return list;
}

template <class T>
struct Scratch {
  std::vector<T> memory;
  explicit Scratch(std::size_t bytes, double holds = std::numeric_limits<double>::quiet_NaN())
      : memory(bytes / sizeof(T) + 1, static_cast<T>(holds)) {
    memory.push_back(T(123));
  }
  Workspace workspace() { return {memory.data(), (memory.size() - 1) * sizeof(T)}; }
  bool intact() const { return memory.back() == T(123); }
};

inline std::vector<Size> ranges(const Call& call, Size time) {
  std::vector<Size> borders = {0};
  for (const Size c : call.cuts) borders.push_back(c);
  borders.push_back(time);
  return borders;
}

/// Equal, where NaN equals NaN.
inline bool same_numbers(const Doubles& x, const Doubles& y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
}

/// Outputs and final states of the kernel.
template <class T, class Family>
Values run_forward(const Family& f, const Values& in, const Call& call) {
  const auto specs = f.specs();
  Bound<T> x(specs, &in, call.layout);
  x.counts = f.counts();
  const std::vector<Size> borders = ranges(call, f.T);
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    const auto list = clipped(f.sequences(), borders[i], borders[i + 1]);
    Scratch<T> scratch(f.template bytes<T>(borders[i + 1] - borders[i], call.form, call.chunk, false), call.scratch);
    EXPECT_EQ(f.template forward<T>(x, list, call.form, call.chunk, ttr::simd<T>(call.target), scratch.workspace()),
              Status::ok);
    EXPECT_TRUE(scratch.intact());
  }
  Values out;
  for (const Spec& s : specs) {
    const Doubles now = x.held[s.name].get();
    if (s.role == Role::output || s.role == Role::state || f.is_state(s.name)) out[s.name] = now;
    else EXPECT_TRUE(same_numbers(now, in.at(s.name))) << s.name << " was modified";
  }
  return out;
}

/// Gradients of  sum <d[o], o> + sum <d[S], final S>  for inputs and (under the states' names) initial states.
template <class T, class Family>
Values run_backward(const Family& f, const Values& in, const Values& d, const Call& call) {
  const auto specs = f.specs();
  Bound<T> x(specs, &in, call.layout);
  x.counts = f.counts();
  const std::vector<Size> borders = ranges(call, f.T);
  std::vector<Bound<T>> starts;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    starts.push_back(x);
    const auto list = clipped(f.sequences(), borders[i], borders[i + 1]);
    Scratch<T> scratch(f.template bytes<T>(borders[i + 1] - borders[i], call.form, call.chunk, false), call.scratch);
    EXPECT_EQ(f.template forward<T>(x, list, call.form, call.chunk, ttr::simd<T>(call.target), scratch.workspace()),
              Status::ok);
  }
  // `gradient` takes d(inputs) and d(initial), `given` has d(outputs) and d(final).
  Bound<T> gradient(specs, nullptr, call.layout), given(specs, &d, call.layout);
  for (std::size_t i = borders.size() - 1; i-- > 0;) {
    const auto list = clipped(f.sequences(), borders[i], borders[i + 1]);
    Scratch<T> scratch(f.template bytes<T>(borders[i + 1] - borders[i], call.form, call.chunk, true), call.scratch);
    for (const Spec& s : specs)
      if (s.role == Role::state) gradient.held[s.name].set(Doubles(count_of(s.extent), 0.0));
    Bound<T> start = starts[i];
    EXPECT_EQ(f.template backward<T>(start, given, gradient, list, call.form, call.chunk, ttr::simd<T>(call.target),
                                     scratch.workspace()),
              Status::ok);
    EXPECT_TRUE(scratch.intact());
    for (const Spec& s : specs)
      if (s.role == Role::state) {
        EXPECT_TRUE(start.held[s.name].get() == starts[i].held[s.name].get()) << "backward changed " << s.name;
        given.held[s.name] = gradient.held[s.name];
      }
  }
  Values out;
  for (const Spec& s : specs)
    if (s.role == Role::input || s.role == Role::state) out[s.name] = gradient.held[s.name].get();
  return out;
}

/// Central differences of the reference.
template <class Family>
Values differences(const Family& f, const Values& in, const Values& d) {
  const Values base = f.reference(in);
  const auto loss = [&](const Values& x) {
    Values out = f.reference(x);
    f.fix_gauge(out, base);
    double sum = 0;
    for (const auto& [name, weights] : d)
      for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * out.at(name)[i];
    return sum;
  };
  Values gradient;
  Values x = in;
  for (const Spec& s : f.specs()) {
    if (s.role != Role::input && s.role != Role::state) continue;
    Doubles& g = gradient[s.name];
    for (double& number : x[s.name]) {
      const double old = number, h = 1e-5;
      number = old + h;
      const double up = loss(x);
      number = old - h;
      const double down = loss(x);
      number = old;
      g.push_back((up - down) / (2 * h));
    }
  }
  return gradient;
}

template <class Family>
Values draw_gradients(const Family& f, unsigned seed) {
  std::vector<Spec> wanted;
  for (Spec s : f.specs())
    if (s.role == Role::output || s.role == Role::state) s.shift = 0, s.size = 1, wanted.push_back(s);
  return draw(wanted, seed);
}

/// max |got - want| / max(|want|, 0.3); the data are of size one.
inline double distance(const Doubles& got, const Doubles& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double error = 0, size = 0.3;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - want[i]) <= 1e300)) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(got[i] - want[i])), size = std::max(size, std::abs(want[i]));
  }
  return error / size;
}

inline void expect_near(const Values& got, const Values& want, double tolerance, const std::string& what) {
  for (const auto& [name, x] : got) {
    ASSERT_TRUE(want.count(name)) << name;
    EXPECT_LE(distance(x, want.at(name)), tolerance) << what << ": " << name;
  }
}

struct FormCall {
  Form form;
  int chunk;
};

/// All of it. `gradients_by_difference` costs two references per number: small sizes only.
template <class Family>
void check_family(const Family& f, const std::vector<FormCall>& forms, bool gradients_by_difference = true,
                  double float_tolerance = 2e-5) {
  const Values in = f.draw_values(), d = draw_gradients(f, 77);
  const Values want = f.reference(in);
  Values want_d;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const auto [form, chunk] = forms[i];
    const std::string what =
        f.name() + " form " + std::to_string(static_cast<int>(form)) + " chunk " + std::to_string(chunk);
    Call call{form, chunk};
    const Values out = run_forward<double>(f, in, call), grad = run_backward<double>(f, in, d, call);
    expect_near(out, want, 1e-11, what);
    if (i == 0) {
      want_d = grad;
      if (gradients_by_difference) expect_near(grad, differences(f, in, d), 1e-6, what + " differences");
    } else {
      expect_near(grad, want_d, 1e-10, what + " gradient against the first form");
    }
    expect_near(run_forward<float>(f, in, call), want, float_tolerance, what + " float");
    expect_near(run_backward<float>(f, in, d, call), want_d, 5 * float_tolerance, what + " float gradient");

    call.layout = with_gaps;
    EXPECT_TRUE(run_forward<double>(f, in, call) == out) << what << " strided";
    expect_near(run_backward<double>(f, in, d, call), grad, 1e-14, what + " strided");
    call.layout = in_order;
    for (Size cut = 0; cut <= f.T; cut += std::max<Size>(1, f.T / 5)) {
      call.cuts = {cut};
      expect_near(run_forward<double>(f, in, call), want, 1e-11, what + " cut");
      expect_near(run_backward<double>(f, in, d, call), want_d, 1e-10, what + " cut");
    }
    if (f.T > 2) {
      call.cuts = {1, f.T / 2, f.T - 1};
      expect_near(run_backward<double>(f, in, d, call), want_d, 1e-10, what + " cuts");
    }
    call.cuts = {};
    for (const std::string& target : ttr::simd_targets()) {
      call.target = target;
      expect_near(run_forward<double>(f, in, call), want, 1e-11, what + " " + target);
      expect_near(run_backward<double>(f, in, d, call), want_d, 1e-10, what + " " + target);
    }
  }
}

/// Token by token is the recurrent form, bit for bit.
template <class Family>
void check_steps(const Family& f) {
  const Values in = f.draw_values();
  Call whole{Form::recurrent, 0}, steps{Form::step, 0};
  for (Size t = 1; t < f.T; ++t) steps.cuts.push_back(t);
  EXPECT_TRUE(run_forward<double>(f, in, whole) == run_forward<double>(f, in, steps)) << f.name();
  EXPECT_TRUE(run_forward<float>(f, in, whole) == run_forward<float>(f, in, steps)) << f.name();
}

/// Each sequence of a batch in a call of its own, the others empty: the same bits.
template <class Family>
void check_alone(const Family& f, const std::vector<FormCall>& forms) {
  const Values in = f.draw_values(), d = draw_gradients(f, 78);
  for (const auto& [form, chunk] : forms) {
    const auto all = f.sequences();
    Bound<float> x(f.specs(), &in, false), given(f.specs(), &d, false), gradient(f.specs(), nullptr, false);
    x.counts = f.counts();
    for (const bool backward : {true, false})
      for (std::size_t n = 0; n < all.size(); ++n) {
        auto list = all;
        for (std::size_t m = 0; m < list.size(); ++m)
          if (m != n) list[m].end = list[m].begin;
        // Final gradients of empty sequences pass through to the initial ones: count them once.
        Bound<float> one = given;
        for (const Spec& s : f.specs()) {
          if (s.role != Role::state) continue;
          const Size size = count_of(s.extent) / f.N();
          for (Size i = 0; i < count_of(s.extent); ++i)
            if (i / size != static_cast<Size>(n)) one.held[s.name].at(i) = 0;
        }
        Scratch<float> scratch(f.template bytes<float>(all[n].end - all[n].begin, form, chunk, backward));
        const Workspace w = scratch.workspace();
        ASSERT_EQ(backward ? f.template backward<float>(x, one, gradient, list, form, chunk, ttr::simd<float>(""), w)
                           : f.template forward<float>(x, list, form, chunk, ttr::simd<float>(""), w),
                  Status::ok);
      }
    const std::string what = f.name() + " alone, form " + std::to_string(static_cast<int>(form));
    for (const auto& [name, want] : run_forward<float>(f, in, {form, chunk}))
      EXPECT_TRUE(x.held[name].get() == want) << what << ": " << name;
    for (const auto& [name, want] : run_backward<float>(f, in, d, {form, chunk}))
      EXPECT_TRUE(gradient.held[name].get() == want) << what << ": d " << name;
  }
}

/// Defaults of what a family says.
struct FamilyBase {
  int B = 1;
  Size T = 7;
  std::vector<Size> packed = {};  // borders of packed sequences in row 0; empty: every row is one sequence
  unsigned seed = 1;

  std::vector<Sequence> sequences() const {
    std::vector<Sequence> list;
    if (packed.empty())
      for (int b = 0; b < B; ++b) list.push_back({b, 0, T});
    for (std::size_t n = 0; n + 1 < packed.size(); ++n) list.push_back({0, packed[n], packed[n + 1]});
    return list;
  }
  Size N() const { return packed.empty() ? B : static_cast<Size>(packed.size()) - 1; }
  std::vector<std::int64_t> counts() const { return {}; }
  bool is_state(const std::string&) const { return false; }
  void fix_gauge(Values&, const Values&) const {}
};

}  // namespace ttr_families_test
