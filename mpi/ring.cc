#include "mpi/ring.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "families/pairs/attention/attention_plan.h"
#include "plan/pipeline.h"

namespace ttr::mpi {
namespace {

using families::AttentionCalls;
using families::AttentionGradient;
using families::AttentionProblem;

// The plan of a call: the kernel finds the ring in it.
struct RingBody : Plan::Body {
  explicit RingBody(const Plan::Body& plan) : Plan::Body(plan), whole(&plan) {}
  const Plan::Body* whole;
  Channel* channel = nullptr;
  RingAttention<float>* f32 = nullptr;
  RingAttention<double>* f64 = nullptr;
  mutable std::exception_ptr error;  // a kernel cannot throw

  template <class T>
  RingAttention<T>& ring() const {
    if constexpr (sizeof(T) == 4) return *f32;
    else return *f64;
  }
  // All threads of the plan work on one task after another; the one that may call MPI looks after messages between parts.
  families::Team team() const {
    return {std::max(2, whole->options.threads),
            [](const void* owner, int tasks, families::Team::Task task, void* context) noexcept {
              const RingBody& own = *static_cast<const RingBody*>(owner);
              struct Part {
                families::Team::Task task;
                void* context;
                Channel* channel;
                std::thread::id caller;
              } part{task, context, own.channel, std::this_thread::get_id()};
              const auto run = [](void* of, int i, int worker) {
                const Part& p = *static_cast<const Part*>(of);
                p.task(p.context, i, worker);
                if (std::this_thread::get_id() == p.caller) p.channel->progress();
              };
              if (own.whole->options.threads > 1) threads::run(own.whole->crew(), tasks, run, &part);
              else
                for (int i = 0; i < tasks; ++i) run(&part, i, 0);
            },
            this};
  }
  template <class Do>
  Status guarded(Do&& work) const {
    try {
      return work();
    } catch (...) {
      error = std::current_exception();
      return Status::not_supported;
    }
  }
};

template <class T>
struct RingCalls {
  static std::size_t workspace(const Plan::Body&, const Step&, std::int64_t, Form, bool) { return 64; }
  static std::size_t after(const Plan::Body&, const Step&, std::int64_t, std::int64_t, bool) { return 64; }
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace work) noexcept {
    const RingBody& body = static_cast<const RingBody&>(o.body());
    return body.guarded([&] {
      return AttentionCalls<T>::forward_by(
          [&](AttentionProblem<T> p) {
            p.team = body.team();
            return body.ring<T>().forward(p, simd_of<T>(body));
          },
          o, state, work);
    });
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, families::Arena arena) noexcept {
    const RingBody& body = static_cast<const RingBody&>(o.body());
    return body.guarded([&] {
      return AttentionCalls<T>::backward_by(
          [&](AttentionProblem<T> p, const AttentionGradient<T>& d, Workspace) {
            p.team = body.team();
            return body.ring<T>().backward(p, d, simd_of<T>(body));
          },
          o, call, arena);
    });
  }
};

const Family ring_family = {.name = "ring",
                            .forms = blocks_only,
                            .traits = families::keeps_pairs,
                            .f32 = calls_of<RingCalls, float>(),
                            .f64 = calls_of<RingCalls, double>()};

// Which step is the attention, if it is the only kernel.
std::optional<std::size_t> kernel_of(const Pipeline& p) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    if (!p.steps[i].kernel) continue;
    if (found || p.steps[i].kernel->name != "attention") return {};
    found = i;
  }
  return found;
}

// One call by a ring.
template <class T>
class RingCall {
 public:
  RingCall(Split::Body& split, const Piece& piece, const Inputs& inputs)
      : b(split),
        body(std::make_shared<RingBody>(*split.plan.body())),
        ring(split.channel, *ring_of(split.plan), piece, inputs.cu_seqlens),
        in(inputs) {
    if constexpr (sizeof(T) == 4) body->f32 = &ring;
    else body->f64 = &ring;
    body->channel = &split.channel;
    body->options.threads = 1, body->backward_piece = 0;
    step = *kernel_of(body->pipeline);
    body->pipeline.steps[step].kernel = &ring_family;
    in.cu_seqlens = piece.packed;
    room = std::max<std::int64_t>(piece.kept + piece.tokens, 1), tokens = piece.tokens;
  }

  void forward(State state, const Outputs& outputs) {
    const Plan plan{std::shared_ptr<const Plan::Body>(body)};
    const Workspace work = b.work_for(plan, room, false);
    agree({.inputs = &in, .outputs = &outputs, .state = state, .workspace = work, .form = b.settings.form},
          [&] { return b.plan.diagnose(in, state, outputs, work, b.settings.form); });
    if (tokens == 0) return static_cast<void>(ring.forward(without_tokens(state), simd_of<T>(*body)));
    finish(plan.forward(in, state, outputs, work, b.settings.form));
  }

  void backward(ConstState start, const Inputs& d_outputs, const Outputs& d_inputs, State d_initial) {
    const Plan plan{std::shared_ptr<const Plan::Body>(body)};
    const Workspace work = b.work_for(plan, room, true);
    const State first{const_cast<void*>(start.data), start.bytes};  // only read
    agree({.inputs = &in,
           .state = first,
           .d_outputs = &d_outputs,
           .d_inputs = &d_inputs,
           .d_initial = d_initial,
           .workspace = work,
           .form = b.settings.form,
           .gradients = Gradients::add},
          [&] { return b.plan.diagnose(in, start, d_outputs, {}, d_inputs, d_initial, work, b.settings.form); });
    if (tokens == 0) return without_tokens_back(first, d_initial);
    finish(plan.backward(in, start, d_outputs, {}, d_inputs, d_initial, work, b.settings.form, Gradients::add));
  }

 private:
  // All ranks know whether one of them has a call that its plan refuses.
  template <class Sentence>
  void agree(Call call, Sentence&& sentence) {
    measure(*body, call);
    const Status status = check_call(*body, call).status;
    std::string complaint = b.fault;
    if (complaint.empty() && status != Status::ok) {
      complaint = sentence();
      if (complaint.empty()) complaint = to_string(status);
    }
    b.channel.agree(complaint);
  }
  void finish(Status status) {
    if (body->error) std::rethrow_exception(body->error);
    b.note(status, [&] { return "attention: " + std::string(to_string(status)); });
  }

  AttentionProblem<T> without_tokens(State state) {
    const RingSizes sizes = *ring_of(b.plan);
    AttentionProblem<T> p;
    p.sequences = ring.sequences();
    p.heads = sizes.heads, p.key_heads = sizes.key_heads, p.key_dim = sizes.key_dim, p.value_dim = sizes.value_dim;
    p.normalise = sizes.normalise;
    p.past_k = part<const T>(state, "k"), p.past_v = part<const T>(state, "v"), p.past_count = body->counts(state);
    if (sizes.gates) p.past_g = families::without_last(part<const T>(state, "g"));
    return p;
  }
  void without_tokens_back(State state, State d_initial) {
    if (body->pipeline.replayed[step]) ring.forward(without_tokens(state), simd_of<T>(*body));
    AttentionGradient<T> d;
    if (d_initial.data) {
      d.d_past_k = part<T>(d_initial, "k"), d.d_past_v = part<T>(d_initial, "v");
      if (ring_of(b.plan)->gates) d.d_past_g = families::without_last(part<T>(d_initial, "g"));
    }
    b.note(ring.backward(without_tokens(state), d, simd_of<T>(*body)), [] { return std::string("attention"); });
  }
  // A part of the state as [N, capacity, heads, dim].
  template <class N>
  View<N, 4> part(State state, const char* name) const {
    const Tensor t = b.plan.state_tensor(state, name);
    View<N, 4> v{static_cast<T*>(t.data), {t.extent[0], t.extent[1], t.extent[2], 1}, {0, 0, 0, 1}};
    for (std::size_t i = 0; i < static_cast<std::size_t>(t.rank); ++i)
      v.extent[i] = t.extent[i], v.stride[i] = t.stride[i];
    return v;
  }

  Split::Body& b;
  std::shared_ptr<RingBody> body;
  RingAttention<T> ring;
  Inputs in;
  std::size_t step = 0;
  std::int64_t room = 1, tokens = 0;
};

}  // namespace

std::optional<RingSizes> ring_of(const Plan& plan) {
  const Plan::Body& body = *plan.body();
  const Pipeline& p = body.pipeline;
  if (p.noncausal || body.options.state_type || body.options.tensors || body.options.rewind > 0) return {};
  const std::optional<std::size_t> kernel = kernel_of(p);
  if (!kernel || p.most_pairs >= 0 || p.pairs != 1) return {};
  const Step& step = p.steps[*kernel];
  const families::AttentionOptions& options = step.options<families::AttentionOptions>();
  if (options.polynomial && !options.unnormalised) return {};  // no log-sums
  RingSizes sizes;
  sizes.batch = body.shape.batch, sizes.heads = body.shape.heads;
  sizes.key_heads = options.own ? body.shape.heads : body.shape.key_heads;
  sizes.key_dim = width(body, step.operands[Slot::k]), sizes.value_dim = width(body, step.operands[Slot::v]);
  sizes.gates = step.operands[Slot::g] >= 0, sizes.normalise = !options.unnormalised;
  return sizes;
}

void Split::Body::ring_forward(const Piece& piece, const Inputs& inputs, State state, const Outputs& outputs,
                               State start) {
  if (channel.rank() > 0) note(plan.reset(state), [] { return std::string("the state cannot be reset"); });
  if (start.data) {
    note(plan.reset(start), [] { return std::string("start cannot be reset"); });
    note(plan.grow(state, start), [] { return std::string("start is too small"); });
  }
  if (plan.options().type == Type::f64) RingCall<double>(*this, piece, inputs).forward(state, outputs);
  else RingCall<float>(*this, piece, inputs).forward(state, outputs);
}

void Split::Body::ring_backward(const Piece& piece, const Inputs& inputs, ConstState start, const Inputs& d_outputs,
                                const Outputs& d_inputs, State d_initial) {
  if (d_initial.data) note(plan.zero(d_initial), [] { return std::string("d_initial is too small"); });
  if (plan.options().type == Type::f64)
    RingCall<double>(*this, piece, inputs).backward(start, d_outputs, d_inputs, d_initial);
  else RingCall<float>(*this, piece, inputs).backward(start, d_outputs, d_inputs, d_initial);
}

}  // namespace ttr::mpi
