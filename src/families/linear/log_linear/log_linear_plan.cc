// The plan of log-linear attention: one memory per level of a binary hierarchy of the past.
#include "families/common/linear_plan.h"
#include "families/linear/log_linear/log_linear.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { levels = Slot::own, count };
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.w.levels && rest.w.level_count > 0);
  rest.w.levels = false, rest.w.level_count = 0;
  rest.takes_fade(), rest.takes_importance(), rest.takes_any_features(), rest.takes_read_norms();
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(log_linear_family, scale, q, k, v, b.log_fade(), b.importance(), Own::count);
  step.operands[Own::levels] = b.canonical("levels");
  b.pipeline().counted = true;
  StatePart memory = b.memory_part(
      k, v, "S", "one memory per level, of 1, 2, 4, ... tokens; live where the token count has that binary digit");
  memory.info.shape.insert(memory.info.shape.find('H') + 1, " L");
  memory.extent.insert(memory.extent.begin() + 1, b.pipeline().letters.at('L'));
  return b.add(std::move(step), "BTHV", {memory});
}

template <class T>
struct LogLinearCalls {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    return log_linear::workspace_bytes<T>(K, V, body.pipeline.letters.at('L'), time, form, body.chunk, backward);
  }
  static LogLinearProblem<T> problem(const KernelArgs<T>& o, State state) {
    LogLinearProblem<T> p;
    p.linear = o.problem(state);
    p.level_scales = o.vectors(Own::levels);
    p.levels = o.body().pipeline.letters.at('L');
    p.count = o.counts(state);
    return p;
  }
  static LogLinearGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call&) {
    LogLinearGradient<T> all;
    all.linear = d;
    all.d_level_scales = o.d_vectors(Own::levels);
    return all;
  }
  static Status forward(const KernelArgs<T>& o, const LogLinearProblem<T>& p, Form form, Workspace work) noexcept {
    return log_linear::forward(p, form, o.body().chunk, simd_of<T>(o.body()), work);
  }
  static Status backward(const KernelArgs<T>& o, const LogLinearProblem<T>& p, const LogLinearGradient<T>& d,
                         Form form, Workspace work) noexcept {
    return log_linear::backward(p, d, form, o.body().chunk, simd_of<T>(o.body()), work);
  }
};

}  // namespace

const Family log_linear_family = {.name = "log_linear",
                                  .forms = blocks_only,
                                  .why_absent = "what a segment makes of the levels depends on where it begins",
                                  .claim = claim,
                                  .build = build,
                                  .f32 = linear_calls_of<LogLinearCalls, float>(),
                                  .f64 = linear_calls_of<LogLinearCalls, double>()};

}  // namespace ttr::families
