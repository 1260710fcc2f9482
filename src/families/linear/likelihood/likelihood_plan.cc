// The plan of online logistic and softmax regression, and of steps that AdaGrad divides (likelihood.h).
#include "families/common/linear_plan.h"
#include "families/linear/likelihood/likelihood.h"

namespace ttr::families {
namespace {

using Loss = Extras::Loss;

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.s.kind, {Solver::Kind::sgd});
  const bool bends = rest.takes(rest.x.loss, {Loss::logistic, Loss::cross_entropy});
  const bool divides = rest.takes(rest.s.metric, {Solver::Metric::adagrad});
  rest.needs(bends || (divides && design.extras.loss == Loss::squared));
  if (divides) rest.s.eps = 0;
  rest.x.read_before = false;
  ignores_fade(rest);
  rest.takes_any_features(), rest.takes_read_norms(), rest.takes_plain_step(), rest.takes_decay_before();
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const Design& d = b.design();
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(likelihood_family, scale, q, k, v, b.decay_before(), b.step_size(k));
  LikelihoodModel model;
  model.loss = d.extras.loss == Loss::logistic        ? LikelihoodModel::Loss::logistic
               : d.extras.loss == Loss::cross_entropy ? LikelihoodModel::Loss::cross_entropy
                                                      : LikelihoodModel::Loss::squared;
  model.adagrad = d.solver.metric == Solver::Metric::adagrad, model.read_before = d.extras.read_before;
  model.eps = d.solver.eps;
  step.set_options(model);
  StatePart memory = b.memory_part(k, v),
            squares = b.memory_part(k, v, "squares", "sum of the squared gradients of S");
  memory.type = squares.type = Type::f64, squares.info.range = Range::positive;
  std::vector<StatePart> parts = {memory};
  if (model.adagrad) parts.push_back(squares);
  return b.add(std::move(step), "BTHV", std::move(parts));
}

template <class T>
struct LikelihoodCalls : HandsOn<T, likelihood::forward<T>, likelihood::backward<T>> {
  static std::size_t bytes(const Plan::Body&, int K, int V, std::int64_t time, Form, bool backward) {
    return likelihood::workspace_bytes(K, V, time, backward);
  }
  static LikelihoodProblem<T> problem(const KernelArgs<T>& o, State state) {
    LikelihoodProblem<T> p;
    p.linear = o.problem(State{});
    p.model = o.step().template options<LikelihoodModel>();
    p.s = o.template state<double>(state, 0);
    if (p.model.adagrad) p.squares = o.template state<double>(state, 1);
    return p;
  }
  static LikelihoodGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    LikelihoodGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_final_s = o.template state<const double>(call.d_final, 0);
    all.d_initial_s = o.template state<double>(call.d_initial, 0);
    if (!o.step().template options<LikelihoodModel>().adagrad) return all;
    all.d_final_squares = o.template state<const double>(call.d_final, 1);
    all.d_initial_squares = o.template state<double>(call.d_initial, 1);
    return all;
  }
};

}  // namespace

const Family likelihood_family = {
    .name = "likelihood",
    .forms = token_by_token,
    .why_absent = "every step goes through the answer of the memory as it is: tokens cannot be taken together",
    .claim = claim,
    .build = build,
    .f32 = linear_calls_of<LikelihoodCalls, float>(),
    .f64 = linear_calls_of<LikelihoodCalls, double>()};

}  // namespace ttr::families
