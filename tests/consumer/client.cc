// Three layers in float, and what a build that has them alone says of others.
#include <ttr/ttr.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

// The sum of the squares of 40 answers; 0 if something fails.
double run(const char* layer) {
  const ttr::TriedPlan tried = ttr::try_plan(layer, {.heads = 2, .key_dim = 8, .value_dim = 8});
  if (!tried) {
    std::printf("%s: %s\n", layer, tried.error.c_str());
    return 0;
  }
  const ttr::Plan& plan = *tried.plan;
  constexpr int T = 40;
  std::vector<std::vector<float>> numbers;
  ttr::Inputs in;
  for (const ttr::InputInfo& info : plan.inputs()) {
    const std::vector<std::ptrdiff_t> extents = plan.extents(info.shape, T);
    ttr::ConstTensor tensor;
    tensor.rank = static_cast<int>(extents.size());
    std::ptrdiff_t count = 1;
    for (std::size_t a = extents.size(); a-- > 0; count *= extents[a])
      tensor.extent[a] = extents[a], tensor.stride[a] = count;
    std::vector<float>& x = numbers.emplace_back(static_cast<std::size_t>(count));
    const bool is_gate = info.range == ttr::Range::log_gate || info.range == ttr::Range::negative;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float wave = std::sin(static_cast<float>(i * (numbers.size() + 1)));
      x[i] = is_gate ? -0.1f - 0.05f * wave : 0.4f + 0.3f * wave;
    }
    tensor.data = x.data();
    in[info.name] = tensor;
  }
  std::vector<float> answers(T * 2 * 8);
  ttr::Outputs out;
  out[plan.outputs().front().name] = ttr::view(answers.data(), 1, T, 2, 8);
  const ttr::Footprint bytes = plan.footprint(T);
  std::vector<std::byte> state(bytes.state), work(bytes.workspace);
  const ttr::State s{state.data(), state.size()};
  if (plan.reset(s) != ttr::Status::ok || plan.forward(in, s, out, {work.data(), work.size()}) != ttr::Status::ok)
    return 0;
  double sum = 0;
  for (const float x : answers) sum += static_cast<double>(x) * static_cast<double>(x);
  std::printf("%s on %s: %.6g\n", layer, plan.kernel().c_str(), sum);
  return sum;
}

}  // namespace

int main() {
  bool ok = true;
  for (const char* layer : {"gated-deltanet", "mamba-2", "softmax-attention"}) ok = run(layer) > 0 && ok;
  run("rls");
  ttr::Options doubles;
  doubles.type = ttr::Type::f64;
  std::printf("f64: %s\n", ttr::try_plan("mamba-2", {}, doubles).error.c_str());
  std::printf("recipe: %s\n", ttr::try_plan("equal / linear / exact(ridge=0.1)", {}).error.c_str());
  return ok ? 0 : 1;
}
