// Recursive least squares beside the loop of the textbooks: P = (sum k k' + ridge I)^{-1} updated by every pair,
//
//   u = P k ;  e = v - W'k ;  c = 1 / (decay + k'u) ;  W += c u e' ;  P = (P - c u u') / decay ;  o = W'q
//
// one head, V = 1, all numbers of one type. It is short and fast and loses its digits (ttr bench rls-stability); what ttr
// computes in its place is rotations (rls with a constant ridge and no decay), systems by factors (with a decay), or this
// recursion in double (kalman). Both compute the answers at the queries and nothing else, on the same numbers.
//
//   build-bench/bench/ttr_least_squares [tokens]         us per token, the best of 15 turns; processor time
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "ttr/ttr.h"

namespace {

double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class T>
struct Data {
  int K, time;
  std::vector<T> q, k, v, o;
  Data(int dim, int tokens) : K(dim), time(tokens) {
    unsigned state = 1;
    const auto number = [&] {
      double sum = -6;
      for (int i = 0; i < 12; ++i) state = state * 1664525u + 1013904223u, sum += state / 4294967296.0;
      return static_cast<T>(sum);
    };
    const std::size_t n = static_cast<std::size_t>(K) * static_cast<std::size_t>(time);
    for (std::size_t i = 0; i < n; ++i) q.push_back(number()), k.push_back(number());
    for (int i = 0; i < time; ++i) v.push_back(number());
    o.resize(v.size());
  }
};

// The first number at a multiple of 64 bytes, of a vector with eight to spare: no vector of numbers lies across two lines.
template <class T>
T* aligned(std::vector<T>& x) {
  const auto at = reinterpret_cast<std::uintptr_t>(x.data());
  return x.data() + (64 - at % 64) % 64 / sizeof(T);
}

// Compiled with the machine's own vectors (-march=native).
template <class T>
double covariance_loop(Data<T>& d, T decay, T ridge, std::vector<T>& P, std::vector<T>& W, std::vector<T>& u) {
  const int K = d.K;
  P.assign(static_cast<std::size_t>(K) * static_cast<std::size_t>(K) + 64 / sizeof(T), T(0)),
      W.assign(static_cast<std::size_t>(K), T(0));
  u.resize(static_cast<std::size_t>(K));
  for (int i = 0; i < K; ++i) aligned(P)[i * K + i] = 1 / ridge;
  const double start = now();
  for (int t = 0; t < d.time; ++t) {
    const T *const k = &d.k[static_cast<std::size_t>(t * K)], *const q = &d.q[static_cast<std::size_t>(t * K)];
    T *const p = aligned(P), *const w = W.data(), *const x = u.data();
    T power = decay, e = d.v[static_cast<std::size_t>(t)], o = 0;
    for (int i = 0; i < K; ++i) x[i] = 0;
    for (int i = 0; i < K; ++i)
      for (int j = 0; j < K; ++j) x[j] += k[i] * p[i * K + j];
    for (int i = 0; i < K; ++i) power += k[i] * x[i], e -= w[i] * k[i];
    const T c = 1 / power, factor = 1 / decay;
    for (int i = 0; i < K; ++i) w[i] += c * e * x[i];
    for (int i = 0; i < K; ++i) {
      const T a = c * x[i];
      for (int j = 0; j < K; ++j) p[i * K + j] = (p[i * K + j] - a * x[j]) * factor;
    }
    for (int i = 0; i < K; ++i) o += w[i] * q[i];
    d.o[static_cast<std::size_t>(t)] = o;
  }
  return now() - start;
}

template <class T>
class Planned {
 public:
  Planned(const std::string& text, int K, int time) {
    ttr::Options options;
    options.type = sizeof(T) == 4 ? ttr::Type::f32 : ttr::Type::f64;
    plan_.push_back(ttr::plan(text, {1, 1, 1, K, 1}, options));
    const ttr::Footprint bytes = plan_[0].footprint(time);
    state_.resize(bytes.state / 8 + 9), work_.resize(bytes.workspace / 8 + 9);
    bytes_ = bytes;
  }
  double run(Data<T>& d) {
    const std::ptrdiff_t time = d.time, K = d.K;
    const ttr::State state{aligned(state_), bytes_.state};
    if (plan_[0].reset(state) != ttr::Status::ok) std::abort();
    ttr::Inputs in;
    in["q"] = ttr::view(d.q.data(), 1, time, 1, K), in["k"] = ttr::view(d.k.data(), 1, time, 1, K);
    in["v"] = ttr::view(d.v.data(), 1, time, 1, 1);
    ttr::Outputs out;
    out["o"] = ttr::view(d.o.data(), 1, time, 1, 1);
    const double start = now();
    if (plan_[0].forward(in, state, out, {aligned(work_), bytes_.workspace}) != ttr::Status::ok) std::abort();
    return now() - start;
  }

 private:
  std::vector<ttr::Plan> plan_;
  ttr::Footprint bytes_;
  std::vector<double> state_, work_;
};

template <class T>
void table(int time) {
  const std::string rows[] = {"rls:ridge=0.1", "rls:ridge=0.1,decay=0.99", "kalman:process=0,noise=0.1"};
  std::printf("%s, us per token\n%6s %10s", sizeof(T) == 4 ? "float" : "double", "K", "loop");
  for (const std::string& row : rows) std::printf(" %34s", row.c_str());
  std::printf("\n");
  for (const int K : {16, 32, 64, 128, 256}) {
    Data<T> d(K, time);
    std::vector<T> P, W, u;
    std::vector<Planned<T>> plans;
    for (const std::string& row : rows) plans.emplace_back(row, K, time);
    double loop = 1e9, best[3] = {1e9, 1e9, 1e9};
    for (int turn = 0; turn < 15; ++turn) {
      loop = std::min(loop, covariance_loop(d, T(1), T(0.1), P, W, u));
      for (std::size_t i = 0; i < plans.size(); ++i) best[i] = std::min(best[i], plans[i].run(d));
    }
    std::printf("%6d %10.3f", K, loop / time * 1e6);
    for (const double seconds : best) std::printf(" %20.3f (%9.2fx)", seconds / time * 1e6, seconds / loop);
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int time = argc > 1 ? std::max(8, std::atoi(argv[1])) : 512;
  table<float>(time), table<double>(time);
}
