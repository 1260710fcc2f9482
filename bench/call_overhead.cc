// What a call costs beyond its arithmetic, at K = V = 4 where arithmetic is little: Plan::step by names, a prepared step, the same
// with tensors of bf16 and f16, and what one more token costs inside a long call in recurrent form, which is the arithmetic; then a backward of one token by
// names and prepared. Nanoseconds, the least of many rounds. With a layer: that one, at --dim if given.
//
//   call_overhead [DIM [LAYER...]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ttr/half.h"
#include "ttr/ttr.h"

namespace {

using Clock = std::chrono::steady_clock;

// Tensors of a call of `time` tokens.
struct Call {
  ttr::Inputs in;
  ttr::Outputs out;
  std::vector<std::vector<float>> memory;
  std::vector<const void*> reads;
  std::vector<void*> writes;
  std::vector<double> state, work;

  Call(const ttr::Plan& plan, std::int64_t time, ttr::Form form) {
    const ttr::Footprint bytes = plan.footprint(time, form);
    state.resize(plan.footprint(4096).state / 8 + 8), work.resize(bytes.workspace / 8 + 8);
    if (plan.reset(state_of()) != ttr::Status::ok) std::exit(1);
    for (const ttr::InputInfo& info : plan.inputs()) {
      in[info.name] = tensor(plan, info.shape, time, info.range == ttr::Range::log_gate ? -0.01f : 0.01f);
      reads.push_back(in[info.name].data);
    }
    for (const ttr::InputInfo& info : plan.outputs()) {
      out[info.name] = tensor(plan, info.shape, time, 0);
      writes.push_back(out[info.name].data);
    }
  }
  ttr::Tensor tensor(const ttr::Plan& plan, const std::string& shape, std::int64_t time, float x) {
    ttr::Tensor t;
    std::ptrdiff_t stride = 1;
    const auto extents = plan.extents(shape, time);
    t.rank = static_cast<int>(extents.size());
    for (std::size_t d = extents.size(); d-- > 0;)
      t.extent[d] = extents[d], t.stride[d] = stride, stride *= extents[d];
    t.data = memory.emplace_back(static_cast<std::size_t>(stride), x).data();
    t.type = plan.options().tensors.value_or(ttr::Type::f32);
    for (std::ptrdiff_t i = 0; i < stride; ++i) {
      if (t.type == ttr::Type::bf16) static_cast<ttr::bf16*>(t.data)[i] = ttr::to_bf16(x);
      else if (t.type == ttr::Type::f16) static_cast<ttr::f16*>(t.data)[i] = ttr::to_f16(x);
    }
    return t;
  }
  ttr::State state_of() { return {state.data(), state.size() * 8}; }
  ttr::Workspace workspace() { return {work.data(), work.size() * 8}; }
};

// A backward of one token.
struct Gradients {
  Call call;
  Call d;  // its tensors are gradients
  ttr::Inputs d_out;
  ttr::Outputs d_in;
  std::vector<const void*> d_reads;
  std::vector<void*> d_writes;
  mutable std::vector<double> work;

  explicit Gradients(const ttr::Plan& plan)
      : call(plan, 1, ttr::Form::recurrent),
        d(plan, 1, ttr::Form::recurrent),
        work(plan.footprint(1).backward / 8 + 8) {
    for (const ttr::InputInfo& info : plan.inputs()) {
      d_writes.push_back(nullptr);
      if (!info.differentiable) continue;
      d_in[info.name] = d.tensor(plan, info.shape, 1, 0);
      d_writes.back() = d_in[info.name].data;
    }
    for (const ttr::InputInfo& info : plan.outputs()) {
      d_reads.push_back(nullptr);
      if (!info.differentiable) continue;
      d_out[info.name] = d.tensor(plan, info.shape, 1, 1);
      d_reads.back() = d_out[info.name].data;
    }
  }
  ttr::ConstState state() const { return {call.state.data(), call.state.size() * 8}; }
  ttr::Workspace workspace() const { return {work.data(), work.size() * 8}; }
};

template <class Body>
double least_ns(int rounds, int calls, Body&& body) {
  double least = 1e30;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i)
      if (body() != ttr::Status::ok) std::exit(1);
    least = std::min(least, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / calls);
  }
  return least;
}

double prepared_ns(const ttr::Plan& plan) {
  Call one(plan, 1, ttr::Form::step);
  ttr::Prepared step = plan.prepare(one.in, one.out, ttr::Form::step);
  return least_ns(200, 2000, [&] { return step(one.reads, one.writes, one.state_of(), one.workspace()); });
}
double prepared_ns(const std::string& layer, const ttr::Shape& shape, ttr::Type tensors) {
  ttr::Options options;
  options.tensors = tensors;
  return prepared_ns(ttr::plan(layer, shape, options));
}

}  // namespace

int main(int argc, char** argv) {
  const int dim = argc > 1 ? std::atoi(argv[1]) : 4;
  std::vector<std::string> layers(argv + std::min(argc, 2), argv + argc);
  if (layers.empty()) layers = {"gated-deltanet", "linear-attention", "mamba-2", "gla", "rwkv-7", "nlms", "rls"};
  std::printf("%-20s %12s %12s %10s %10s %12s %18s %14s %14s\n", "layer", "step ns", "prepared ns", "bf16", "f16",
              "arithmetic", "beyond arithmetic", "backward ns", "prepared ns");
  for (const std::string& layer : layers) {
    const ttr::Shape shape{1, 1, 1, dim, dim};
    const ttr::Plan plan = ttr::plan(layer, shape);
    Call one(plan, 1, ttr::Form::step);
    const double named =
        least_ns(200, 2000, [&] { return plan.step(one.in, one.state_of(), one.out, one.workspace()); });
    const double prepared = prepared_ns(plan), bf16 = prepared_ns(layer, shape, ttr::Type::bf16),
                 f16 = prepared_ns(layer, shape, ttr::Type::f16);
    double whole[2];
    for (int i = 0; i < 2; ++i) {
      Call call(plan, i ? 512 : 32, ttr::Form::recurrent);
      whole[i] = least_ns(500, 4, [&] {
        return plan.forward(call.in, call.state_of(), call.out, call.workspace(), ttr::Form::recurrent);
      });
    }
    const double arithmetic = (whole[1] - whole[0]) / 480;
    const Gradients back(plan);
    const double by_name = least_ns(200, 1000, [&] {
      return plan.backward(back.call.in, back.state(), back.d_out, {}, back.d_in, {}, back.workspace());
    });
    ttr::PreparedBackward call = plan.prepare_backward(back.call.in, back.d_out, back.d_in);
    const double ready = least_ns(200, 1000, [&] {
      return call(back.call.reads, back.state(), back.d_reads, {}, back.d_writes, {}, back.workspace());
    });
    std::printf("%-20s %12.0f %12.0f %10.0f %10.0f %12.0f %18.0f %14.0f %14.0f\n", layer.c_str(), named, prepared,
                bf16, f16, arithmetic, prepared - arithmetic, by_name, ready);
  }
}
