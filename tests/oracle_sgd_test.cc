// The oracle's step rules against recurrences written out here by hand, and against identities between designs.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "oracle_trial.h"

namespace ttr::oracle {
namespace {

using namespace trial;

TEST(OracleSgd, DeltaRule) {
  expect_recurrence(sgd_design(), [](Trial& r, State& S, std::int64_t t) {
    write(S, r.k(t), minus(r.v(t), read(S, r.k(t))), r.x("beta", t));
  });
}

TEST(OracleSgd, GatedDeltaRuleDecaysBeforeItReads) {
  expect_recurrence(sgd_design([](Design& d) { cases::decay(d); }), [](Trial& r, State& S, std::int64_t t) {
    scale(S, std::exp(r.x("g", t)));
    write(S, r.k(t), minus(r.v(t), read(S, r.k(t))), r.x("beta", t));
  });
}

TEST(OracleSgd, DecayPerKeyChannelAndConstantDecay) {
  expect_recurrence(sgd_design([](Design& d) { cases::decay(d, Per::key); }), [](Trial& r, State& S, std::int64_t t) {
    for (int a = 0; a < K; ++a)
      for (int b = 0; b < V; ++b) S[a][b] *= std::exp(r.row<K>("gk", t)[a]);
    write(S, r.k(t), minus(r.v(t), read(S, r.k(t))), r.x("beta", t));
  });
  expect_recurrence(
      sgd_design([](Design& d) { d.solver.decay_kind = Solver::Decay::before, d.solver.decay = constant(0.1); }),
      [](Trial& r, State& S, std::int64_t t) {
        scale(S, 0.9);
        write(S, r.k(t), minus(r.v(t), read(S, r.k(t))), r.x("beta", t));
      });
}

TEST(OracleSgd, FeedbackReadsTheUndecayedState) {
  expect_recurrence(sgd_design([](Design& d) { cases::decay(d), d.solver.feedback = true; }),
                    [](Trial& r, State& S, std::int64_t t) {
                      const Value u = minus(r.v(t), read(S, r.row<K>("p", t)));
                      scale(S, std::exp(r.x("g", t)));
                      write(S, r.k(t), u, r.x("beta", t));
                    });
}

TEST(OracleSgd, SplitAndDplr) {
  auto fade = [](Trial& r, State& S, std::int64_t t) {
    for (int a = 0; a < K; ++a)
      for (int b = 0; b < V; ++b) S[a][b] *= std::exp(r.row<K>("gk", t)[a]);
  };
  auto base = [](Design& d) { d.solver.step = {}, cases::decay(d, Per::key); };
  expect_recurrence(sgd_design([&](Design& d) { base(d), d.solver.split = true; }),
                    [&](Trial& r, State& S, std::int64_t t) {
                      fade(r, S, t);
                      Key read_key = r.k(t);
                      Value target = r.v(t);
                      for (int a = 0; a < K; ++a) read_key[a] *= r.row<K>("erase", t)[a];
                      for (int b = 0; b < V; ++b) target[b] *= r.row<V>("write", t)[b];
                      write(S, r.k(t), minus(target, read(S, read_key)));
                    });
  expect_recurrence(sgd_design([&](Design& d) { base(d), d.solver.dplr = true; }),
                    [&](Trial& r, State& S, std::int64_t t) {
                      const Value low = read(S, r.row<K>("a", t));
                      fade(r, S, t);
                      write(S, r.row<K>("b", t), low);
                      write(S, r.k(t), r.v(t));
                    });
}

TEST(OracleSgd, Precondition) {
  Key A{};
  expect_recurrence(sgd_design([](Design& d) { cases::decay(d), d.solver.precondition = true; }),
                    [&](Trial& r, State& S, std::int64_t t) {
                      scale(S, std::exp(r.x("g", t)));
                      Key write_key = r.k(t);
                      for (int a = 0; a < K; ++a) {
                        A[a] = std::exp(r.x("g_atk", t)) * A[a] + r.x("beta_atk", t) * r.k(t)[a] * r.k(t)[a];
                        const double m = std::log(A[a] + 1e-6) - r.x("log_atk_scale", 0);
                        write_key[a] *= std::pow(1.5, -m / (1 + std::abs(m)));
                      }
                      write(S, write_key, minus(r.v(t), read(S, r.k(t))), r.x("beta", t));
                    });
}

TEST(OracleSgd, SeveralPairsPerTokenDecayOnce) {
  expect_recurrence(sgd_design([](Design& d) { cases::decay(d), d.solver.pairs = 3; }),
                    [](Trial& r, State& S, std::int64_t t) {
                      scale(S, std::exp(r.x("g", t)));
                      for (std::int64_t i = 3 * t; i < 3 * t + 3; ++i)
                        write(S, r.k(i), minus(r.v(i), read(S, r.k(i))), r.x("beta", i));
                    });
}

TEST(OracleSgd, MomentumAndNesterov) {
  for (bool nesterov : {false, true}) {
    State Z{};
    expect_recurrence(sgd_design([&](Design& d) {
                        d.solver.momentum = input(), d.solver.nesterov = nesterov,
                        d.solver.decay_kind = Solver::Decay::shrink, d.solver.decay = input();
                      }),
                      [&](Trial& r, State& S, std::int64_t t) {
                        const double m = r.x("momentum", t);
                        State point = S;
                        for (int a = 0; a < K && nesterov; ++a)
                          for (int b = 0; b < V; ++b) point[a][b] += m * Z[a][b];
                        const Value residual = minus(r.v(t), read(point, r.k(t)));
                        scale(Z, m);
                        write(Z, r.k(t), residual, r.x("beta", t));
                        scale(S, 1 - r.x("lam", t));
                        for (int a = 0; a < K; ++a)
                          for (int b = 0; b < V; ++b) S[a][b] += Z[a][b];
                      });
  }
}

TEST(OracleSgd, LeakIsAGatedDeltaRuleWithOtherNumbers) {
  expect_same(sgd_design([](Design& d) { d.solver.decay_kind = Solver::Decay::leak, d.solver.decay = input(); }),
              sgd_design([](Design& d) { cases::decay(d); }), 1e-12, 9, [](Trial& x, Trial& y) {
                for (std::int64_t t = 0; t < 9; ++t) {
                  const double a = 1 - x.x("beta", t) * x.x("lam", t);
                  y.in["g"].data[static_cast<std::size_t>(t)] = std::log(a);
                  y.in["beta"].data[static_cast<std::size_t>(t)] = x.x("beta", t) / a;
                  for (int b = 0; b < V; ++b) y.in["v"].data[static_cast<std::size_t>(t * V + b)] *= a;
                }
              });
}

TEST(OracleSgd, NlmsFitsTheNewestPair) {
  Trial r(sgd_design([](Design& d) { d.solver.rule = Rule::nlms, d.solver.step = {}; }));
  r.in["q"] = r.in["k"];
  r.go();
  for (std::int64_t t = 0; t < 9; ++t)
    for (int b = 0; b < V; ++b) EXPECT_NEAR(r.o(t, b), r.v(t)[b], 1e-12);
}

TEST(OracleSgd, NlmsWithAZeroKeyDoesNothing) {
  Trial r(sgd_design([](Design& d) { d.solver.rule = Rule::nlms; }), 1);
  for (double& x : r.in["k"].data) x = 0;
  r.go();
  for (double x : r.state["S"].data) EXPECT_EQ(x, 0);
}

TEST(OracleSgd, LonghornIsTheImplicitStep) {
  Trial r(sgd_design([](Design& d) { d.solver.rule = Rule::longhorn; }), 1);
  State S;
  for (int i = 0; i < K * V; ++i) S[i / V][i % V] = r.state["S"].data[static_cast<std::size_t>(i)] = 0.1 * i - 0.2;
  r.go();
  State X;
  for (int i = 0; i < K * V; ++i) X[i / V][i % V] = r.state["S"].data[static_cast<std::size_t>(i)];
  // argmin 1/2 |X - S|^2 + delta/2 |v - X'k|^2 is stationary: X - S = delta k (v - X'k)'
  const Value residual = minus(r.v(0), read(X, r.k(0)));
  for (int a = 0; a < K; ++a)
    for (int b = 0; b < V; ++b) EXPECT_NEAR(X[a][b] - S[a][b], r.x("delta") * r.k(0)[a] * residual[b], 1e-13);
}

TEST(OracleSgd, FlowIsTheLimitOfManySmallSteps) {
  expect_recurrence(
      sgd_design([](Design& d) { d.solver.rule = Rule::flow; }),
      [](Trial& r, State& S, std::int64_t t) {
        const int n = 200;  // Runge-Kutta of dS/ds = k (v - S'k)'
        const double h = r.x("beta", t) / n;
        for (int i = 0; i < n; ++i) {
          std::array<State, 4> slope{};
          for (int stage = 0; stage < 4; ++stage) {
            State at = S;
            for (int a = 0; a < K && stage > 0; ++a)
              for (int b = 0; b < V; ++b) at[a][b] += h * (stage == 3 ? 1 : 0.5) * slope[stage - 1][a][b];
            write(slope[stage], r.k(t), minus(r.v(t), read(at, r.k(t))));
          }
          for (int a = 0; a < K; ++a)
            for (int b = 0; b < V; ++b)
              S[a][b] += h / 6 * (slope[0][a][b] + 2 * slope[1][a][b] + 2 * slope[2][a][b] + slope[3][a][b]);
        }
      },
      1e-10);
  Trial tiny(sgd_design([](Design& d) { d.solver.rule = Rule::flow; }), 1);
  for (double& x : tiny.in["k"].data) x *= 1e-9;
  tiny.go();
  for (int b = 0; b < V; ++b)
    EXPECT_NEAR(tiny.state["S"].data[b] / (tiny.x("beta") * tiny.k(0)[0] * tiny.v(0)[b]), 1, 1e-12);
}

TEST(OracleSgd, RobustLosses) {
  auto step = [](bool coordinate) {
    return [coordinate](Trial& r, State& S, std::int64_t t) {
      Value e = minus(read(S, r.k(t)), r.v(t));
      const double c = r.x("c", t), length = std::hypot(e[0], e[1]);
      for (double& x : e) x = coordinate ? std::clamp(x, -c, c) : length > c ? c * x / length : x;
      write(S, r.k(t), e, -r.x("beta", t));
    };
  };
  for (bool coordinate : {false, true})
    expect_recurrence(sgd_design([&](Design& d) {
                        d.extras.loss = coordinate ? Extras::Loss::huber_coordinate : Extras::Loss::huber,
                        d.extras.loss_parameter = input();
                      }),
                      step(coordinate));
}

TEST(OracleSgd, OjaMapsValuesToKeys) {
  expect_recurrence(sgd_design([](Design& d) { d.memory.reverse = true; }), [](Trial& r, State& S, std::int64_t t) {
    Key e = r.k(t);
    for (int a = 0; a < K; ++a)
      for (int b = 0; b < V; ++b) e[a] -= S[a][b] * r.v(t)[b];
    write(S, e, r.v(t), r.x("beta", t));
  });
}

TEST(OracleSgd, MinibatchOfOneIsSgdAndBlocksFreezeTheGradient) {
  auto mini = [](int b) {
    return make([b](Design& d) { d.solver.kind = Kind::minibatch, d.solver.batch = b, d.solver.step = input(); });
  };
  expect_same(sgd_design(), mini(1), 1e-13, 9, [](Trial& x, Trial& y) { y.in["rate"].data = x.in["beta"].data; });
  State start{};
  expect_recurrence(mini(4), [&](Trial& r, State& S, std::int64_t t) {
    if (t % 4 == 0) start = S;
    write(S, r.k(t), minus(r.v(t), read(start, r.k(t))), r.x("rate", t));
  });
}

}  // namespace
}  // namespace ttr::oracle
