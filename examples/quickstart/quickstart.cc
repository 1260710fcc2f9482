// Runs Gated DeltaNet over a short random sequence, as a whole and token by token, and asks for gradients.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include <ttr/ttr.h>

int main() {
  constexpr int B = 1, T = 100, H = 4, K = 16, V = 16;
  const ttr::Plan plan = ttr::plan("gated-deltanet", {.batch = B, .heads = H, .key_dim = K, .value_dim = V});
  std::printf("%s = %s, kernel %s\n", plan.name().c_str(), ttr::to_string(plan.recipe()).c_str(),
              plan.kernel().c_str());

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto numbers = [&](int n) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& value : x) value = normal(random);
    return x;
  };
  std::vector<float> q = numbers(B * T * H * K), k = numbers(B * T * H * K), v = numbers(B * T * H * V);
  for (float& x : k) x /= std::sqrt(static_cast<float>(K));  // keys of about length one: the delta rule needs them
  std::vector<float> beta(B * T * H, 0.5f), g(B * T * H, -0.05f), o(B * T * H * V);

  ttr::Inputs in;
  in["q"] = ttr::view(q.data(), B, T, H, K);
  in["k"] = ttr::view(k.data(), B, T, H, K);
  in["v"] = ttr::view(v.data(), B, T, H, V);
  in["beta"] = ttr::view(beta.data(), B, T, H);
  in["g"] = ttr::view(g.data(), B, T, H);
  ttr::Outputs out;
  out["o"] = ttr::view(o.data(), B, T, H, V);

  // The caller owns all memory: the state can be saved, copied and put back.
  const ttr::Footprint bytes = plan.footprint(T);
  std::vector<std::byte> state(bytes.state), work(bytes.workspace), back(bytes.backward);
  plan.reset({state.data(), state.size()});
  ttr::Status status = plan.forward(in, {state.data(), state.size()}, out, {work.data(), work.size()});
  if (status != ttr::Status::ok) {
    std::printf("%s\n", plan.diagnose(in, {state.data(), state.size()}, out, {work.data(), work.size()}).c_str());
    return 1;
  }

  // The same, one token at a time: inputs are views, so a token is a view with T = 1.
  std::vector<float> token(B * H * V);
  float difference = 0;
  plan.reset({state.data(), state.size()});
  for (int t = 0; t < T; ++t) {
    ttr::Inputs one;
    one["q"] = ttr::view(q.data() + t * H * K, B, 1, H, K);
    one["k"] = ttr::view(k.data() + t * H * K, B, 1, H, K);
    one["v"] = ttr::view(v.data() + t * H * V, B, 1, H, V);
    one["beta"] = ttr::view(beta.data() + t * H, B, 1, H);
    one["g"] = ttr::view(g.data() + t * H, B, 1, H);
    ttr::Outputs answer;
    answer["o"] = ttr::view(token.data(), B, 1, H, V);
    if (plan.step(one, {state.data(), state.size()}, answer, {work.data(), work.size()}) != ttr::Status::ok) return 1;
    for (int i = 0; i < H * V; ++i)
      difference = std::max(
          difference, std::abs(token[static_cast<std::size_t>(i)] - o[static_cast<std::size_t>(t * H * V + i)]));
  }
  std::printf("whole sequence and token by token differ by %.1e\n", static_cast<double>(difference));

  // Gradients of sum(o): only the inputs named here are computed.
  std::vector<float> ones(o.size(), 1.0f), dk(k.size()), start(bytes.state / sizeof(float));
  ttr::Inputs d_out;
  d_out["o"] = ttr::view(ones.data(), B, T, H, V);
  ttr::Outputs d_in;
  d_in["k"] = ttr::view(dk.data(), B, T, H, K);
  status = plan.backward(in, {start.data(), bytes.state}, d_out, {}, d_in, {}, {back.data(), back.size()});
  if (status != ttr::Status::ok) return 1;
  double norm = 0;
  for (float x : dk) norm += static_cast<double>(x) * static_cast<double>(x);
  std::printf("norm of the gradient of k: %.6f\n", std::sqrt(norm));
  return difference < 1e-4f && norm > 0 ? 0 : 1;
}
