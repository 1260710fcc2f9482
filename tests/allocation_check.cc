// Kernels allocate nothing: counts operator new during step, forward and backward of every layer that has a kernel.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "ttr/ttr.h"

namespace {
long allocations = 0;
}

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

int main() {
  int checked = 0, failed = 0;
  for (const ttr::LayerInfo& info : ttr::layers()) {
    for (const char* settings : {"", ":ridge=0.5"}) {
      if (*settings && info.name != "rls") continue;
      const ttr::Plan plan =
          ttr::plan(info.name + settings, {.batch = 2, .heads = 2, .key_dim = 12, .value_dim = info.square ? 12 : 9});
      if (plan.kernel() == "oracle") continue;
      for (ttr::Form form : plan.forms()) {
        const int T = form == ttr::Form::step ? 1 : 70;
        // Backward is called with the state after forward: pairs kept count twice.
        const ttr::Footprint bytes = plan.footprint(2 * T, form);
        std::vector<float> numbers(500000, 0.1f), gradients(2000000), out(500000);
        std::vector<std::byte> state(bytes.state), work(bytes.workspace), back(bytes.backward);
        ttr::Inputs in, d_out;
        ttr::Outputs o, d_in;
        const auto tensor = [&](float* data, const std::string& shape) {
          ttr::Tensor t;
          t.data = data, t.type = ttr::Type::f32;
          const auto extents = plan.extents(shape, T);
          t.rank = static_cast<int>(extents.size());
          std::ptrdiff_t stride = 1;
          for (std::size_t d = extents.size(); d-- > 0;)
            t.extent[d] = extents[d], t.stride[d] = stride, stride *= extents[d];
          return t;
        };
        float* gradient = gradients.data();  // what is written shares no memory
        for (const ttr::InputInfo& input : plan.inputs()) {
          in[input.name] = tensor(numbers.data(), input.shape);
          const ttr::Tensor d = d_in[input.name] = tensor(gradient, input.shape);
          gradient += d.rank ? d.extent[0] * d.stride[0] : 1;
        }
        const ttr::InputInfo& output = plan.outputs().front();
        o[output.name] = tensor(out.data(), output.shape);
        d_out[output.name] = tensor(out.data(), output.shape);
        const ttr::State s{state.data(), state.size()};
        plan.reset(s);
        const long before = allocations;
        const ttr::Status forward = plan.forward(in, s, o, {work.data(), work.size()}, form);
        const ttr::Status backward =
            form == ttr::Form::step ? ttr::Status::ok
                                    : plan.backward(in, s, d_out, {}, d_in, {}, {back.data(), back.size()}, form);
        const long made = allocations - before;
        ++checked;
        if (made == 0 && forward == ttr::Status::ok && backward == ttr::Status::ok) continue;
        ++failed;
        std::printf("%s%s, form %s: %ld allocations; forward: %s; backward: %s\n", info.name.c_str(), settings,
                    std::string(ttr::to_string(form)).c_str(), made, std::string(ttr::to_string(forward)).c_str(),
                    std::string(ttr::to_string(backward)).c_str());
      }
    }
  }
  std::printf("%d calls checked, %d failed\n", checked, failed);
  return checked > 20 && failed == 0 ? 0 : 1;
}
