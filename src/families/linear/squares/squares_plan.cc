// The plan of sums over squares: `linear(rebased)` as decay sums it, and layers that square their keys themselves.
#include "families/linear/squares/squares.h"

#include "families/linear/scalar/scalar_plan.h"
#include "simd/squares.h"

namespace ttr::families {
namespace {

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.m.feature, {Memory::Feature::rebased});
  rest.needs(design.solver.rule != Solver::Rule::automatic);  // that step needs the features themselves
  rest.takes_narrow_features();
  return causal && claims_sums(rest, design);
}

// [F, V] in double, whatever the type of the tensors.
StatePart part_of(const Builder& b, int k, int v, std::string name, std::string meaning) {
  StatePart part = b.memory_part(k, v, std::move(name), std::move(meaning));
  part.info.shape[4] = 'F';  // B H K V
  part.extent[1] = squares_of(b.width(k)), part.type = Type::f64;
  return part;
}

int build(Builder& b, double scale) {
  const int q = b.squared_keys("q"), k = b.squared_keys("k");
  b.pipeline().letters['F'] = squares_of(b.width(k));
  return build_sums(b, scale, squares_family, q, k, part_of);
}

template <class T>
struct SquaresCalls : HandsOn<T, squares::forward<T>, squares::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    return squares::workspace_bytes(K, V, body.shape.heads / body.shape.key_heads, time, form, body.options.chunk,
                                    backward);
  }
  static SquaresProblem<T> problem(const KernelArgs<T>& o, State state) {
    return {o.problem({}), o.template state<double>(state)};
  }
  static SquaresGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    return {d, o.template state<const double>(call.d_final), o.template state<double>(call.d_initial)};
  }
};

}  // namespace

const Family squares_family = {.name = "squares",
                               .forms = all_forms,
                               .claim = claim,
                               .build = build,
                               .f32 = linear_calls_of<SquaresCalls, float>(),
                               .f64 = linear_calls_of<SquaresCalls, double>()};

}  // namespace ttr::families
