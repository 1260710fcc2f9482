// Layers that keep their pairs need memory that grows with the sequence, never with its square: what a plan asks for,
// and what a run takes from the machine. At T = 16384 one T x T array of float would be a gigabyte.
//
// A run is measured in a child process, whose peak starts at what it inherits; its buffers are fresh pages.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ttr/ttr.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TTR_SHADOW_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TTR_SHADOW_MEMORY 1
#endif
#endif

namespace ttr {
namespace {

constexpr std::size_t slack = 4u << 20;  // stack, code pages, allocator

struct Doubling {
  std::string what;
  std::size_t bytes[3];  // at T = 4096, 8192 and 16384
};

TEST(MemoryGrowth, FootprintsGrowWithTheLengthAndNotWithItsSquare) {
  for (const char* layer : {"softmax-attention", "local-linear-attention"})
    for (Type type : {Type::f32, Type::f64})
      for (int heads : {1, 4}) {
        Options options;
        options.type = type;
        const Plan p = plan(layer, {.heads = heads, .key_dim = 64, .value_dim = 64}, options);
        std::vector<Form> forms = {Form::best};
        for (Form form : p.forms())
          if (form != Form::step) forms.push_back(form);
        ASSERT_GE(forms.size(), 4u) << layer;
        for (Form form : forms) {
          Doubling doublings[] = {{"state", {}}, {"forward", {}}, {"backward", {}}};
          for (int i = 0; i < 3; ++i) {
            const Footprint bytes = p.footprint(std::int64_t{4096} << i, form);
            doublings[0].bytes[i] = bytes.state;
            doublings[1].bytes[i] = bytes.workspace;
            doublings[2].bytes[i] = bytes.backward;
          }
          for (const Doubling& d : doublings)
            for (int i = 0; i < 2; ++i)
              EXPECT_LT(static_cast<double>(d.bytes[i + 1]), 2.2 * static_cast<double>(d.bytes[i]))
                  << layer << ", " << to_string(form) << ", " << d.what << " from T = " << (4096 << i);
          EXPECT_GE(doublings[0].bytes[2], std::size_t{16384} * 128 * size_of(type)) << "the pairs themselves";
        }
      }
}

#ifndef TTR_SHADOW_MEMORY

/// Pages that nobody has touched yet; ends the process if there are none.
template <class T>
T* fresh(std::size_t bytes) {
  void* data = mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) _exit(3);
  return static_cast<T*>(data);
}

std::size_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

struct Measured {
  Status status = Status::not_supported;
  std::size_t tensors = 0, footprint = 0, grown = 0;  // bytes: inputs and outputs, what the plan asks for, the peak
};

/// One forward or backward of one head in float, K = V, on `time` tokens.
Measured run(const Plan& p, int time, bool backward) {
  const int K = p.shape().key_dim;
  const std::size_t elements = static_cast<std::size_t>(time) * K, bytes = elements * sizeof(float);
  Measured out;
  const std::size_t before = peak_bytes();
  const Footprint need = p.footprint(time);
  const std::size_t scratch = backward ? need.backward : need.workspace;
  auto* x = fresh<float>(3 * bytes);
  std::uint32_t random = 1;
  for (std::size_t i = 0; i < 3 * elements; ++i) {
    random = random * 1664525u + 1013904223u;
    x[i] = static_cast<float>(random >> 8) * 0x1p-23f - 1;
  }
  auto* y = fresh<float>((backward ? 4 : 1) * bytes);
  auto* state = fresh<std::byte>(need.state);
  auto* work = fresh<std::byte>(scratch);
  float ridge = 0.1f;
  Inputs in, d_out;
  Outputs o, d_in;
  const char* names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) in[names[i]] = view(x + i * elements, 1, time, 1, K);
  for (const InputInfo& info : p.inputs())
    if (info.name == "ridge") in["ridge"] = view(&ridge, 1);
  o["o"] = view(y, 1, time, 1, K);
  out.status = p.reset({state, need.state});
  if (out.status == Status::ok) {
    if (backward) {
      for (std::size_t i = 0; i < elements; ++i) y[i] = x[i];
      d_out["o"] = view(y, 1, time, 1, K);
      for (int i = 0; i < 3; ++i) d_in[names[i]] = view(y + (i + 1) * elements, 1, time, 1, K);
      out.status = p.backward(in, {state, need.state}, d_out, {}, d_in, {}, {work, scratch});
    } else {
      out.status = p.forward(in, {state, need.state}, o, {work, scratch});
    }
  }
  out.tensors = (backward ? 7 : 4) * bytes, out.footprint = need.state + scratch, out.grown = peak_bytes() - before;
  return out;
}

Measured in_child(const Plan& p, int time, bool backward) {
  int ends[2];
  Measured out;
  if (pipe(ends) != 0) return out;
  const pid_t child = fork();
  if (child == 0) {
    const Measured measured = run(p, time, backward);
    _exit(write(ends[1], &measured, sizeof measured) == sizeof measured ? 0 : 4);
  }
  close(ends[1]);
  Measured answer;
  if (child > 0 && read(ends[0], &answer, sizeof answer) == sizeof answer) out = answer;
  close(ends[0]);
  int code = 0;
  if (child > 0) waitpid(child, &code, 0);
  return out;
}

void expect_bounded(const char* layer, int K, int time, bool backward) {
  const Plan p = plan(layer, {.key_dim = K, .value_dim = K});
  const Measured m = in_child(p, time, backward);
  ASSERT_EQ(m.status, Status::ok) << layer << ": " << to_string(m.status);
  EXPECT_LE(m.grown, m.tensors + m.footprint + slack) << layer << ", T = " << time;
  EXPECT_GE(m.grown + slack / 4, m.tensors) << "the measurement itself: tensors that were written must show";
}

TEST(MemoryGrowth, SoftmaxAttentionTakesWhatItAskedFor) {
  expect_bounded("softmax-attention", 64, 16384, false);
  expect_bounded("softmax-attention", 16, 16384, true);
}

TEST(MemoryGrowth, LocalLinearAttentionTakesWhatItAskedFor) {
  expect_bounded("local-linear-attention", 4, 16384, false);  // narrow keys: the time goes with K^2
  expect_bounded("local-linear-attention", 4, 4096, true);
}

#endif

}  // namespace
}  // namespace ttr
