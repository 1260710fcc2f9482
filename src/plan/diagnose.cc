#include "plan/diagnose.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "families/solve/givens/lost.h"
#include "ttr/half.h"

namespace ttr {
namespace {

const char* axis_name(char letter) {
  switch (letter) {
    case 'B':
      return "batch";
    case 'T':
      return "time";
    case 'P':
      return "pairs";
    case 'H':
      return "heads";
    case 'G':
      return "key_heads";
    case 'K':
      return "key_dim";
    case 'V':
      return "value_dim";
    case 'M':
      return "slots";
    default:
      return "extent";
  }
}

std::string list_of(const std::vector<InputInfo>& infos) {
  std::string list;
  for (const InputInfo& info : infos) list += (list.empty() ? "" : ", ") + info.name;
  return list;
}

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

double element(const ConstTensor& t, std::ptrdiff_t offset) {
  switch (t.type) {
    case Type::f32:
      return static_cast<const float*>(t.data)[offset];
    case Type::f64:
      return static_cast<const double*>(t.data)[offset];
    case Type::bf16:
      return to_float(static_cast<const bf16*>(t.data)[offset]);
    case Type::f16:
      return to_float(static_cast<const f16*>(t.data)[offset]);
    case Type::i64:
    case Type::i8:
      break;  // no tensor of a call has it
  }
  return 0;
}

using Index = std::array<std::ptrdiff_t, max_rank>;

// The first element for which `wrong` holds.
template <class Wrong>
bool find_element(const ConstTensor& t, Wrong&& wrong, Index& at, double& x) {
  at = {};
  for (int d = 0; d < t.rank; ++d)
    if (t.extent[static_cast<std::size_t>(d)] < 1) return false;
  for (;;) {
    std::ptrdiff_t offset = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) offset += at[d] * t.stride[d];
    if (wrong(x = element(t, offset))) return true;
    int d = t.rank;
    while (--d >= 0 && ++at[static_cast<std::size_t>(d)] == t.extent[static_cast<std::size_t>(d)])
      at[static_cast<std::size_t>(d)] = 0;
    if (d < 0) return false;
  }
}

// "sequence 1, token 3, head 0", by the letters of the tensor. Packed sequences: tokens count from the first of theirs.
std::string place(const Axes& axes, const Index& at, std::span<const std::int64_t> cu) {
  std::string text;
  std::ptrdiff_t token = -1, sequence = 0;
  const auto add = [&](const char* what, std::ptrdiff_t i) {
    text += (text.empty() ? "" : ", ") + std::string(what) + " " + std::to_string(i);
  };
  for (std::size_t d = 0; d < axes.size(); ++d) {
    if (axes[d] == 'B') sequence = at[d];
    if (axes[d] == 'T' || axes[d] == 'P') token = at[d];
  }
  if (token >= 0 && !cu.empty()) {
    sequence = 0;
    while (static_cast<std::size_t>(sequence) + 2 < cu.size() && token >= cu[static_cast<std::size_t>(sequence) + 1])
      ++sequence;
    token -= static_cast<std::ptrdiff_t>(cu[static_cast<std::size_t>(sequence)]);
  }
  if (token >= 0 || axes.find('B') != Axes::npos) add("sequence", sequence);
  if (token >= 0) add("token", token);
  for (std::size_t d = 0; d < axes.size(); ++d)
    if (axes[d] == 'H' || axes[d] == 'G') add("head", at[d]);
  return text;
}

// The first input with a number that a layer cannot take, beginning with those that no layer can.
std::string suspicious_input(const Plan::Body& body, const Call& call) {
  const Pipeline& p = body.pipeline;
  for (const bool finite : {true, false})
    for (std::size_t i = 0; i < p.inputs.size(); ++i) {
      const InputInfo& info = p.inputs[i];
      const ConstTensor t = call.inputs->get(info.name);
      if (!t) continue;
      Index at;
      double x = 0;
      std::string remedy;
      const auto search = [&](auto&& wrong, const char* rule) {
        if (find_element(t, wrong, at, x)) remedy = rule;
      };
      if (finite) search([](double e) { return !std::isfinite(e); }, "every number must be finite");
      else if (info.range == Range::positive) search([](double e) { return !(e > 0); }, "it must be above 0");
      else if (info.range == Range::negative) search([](double e) { return !(e < 0); }, "it must be below 0");
      else if (info.range == Range::sigmoid || info.range == Range::rate)
        search([](double e) { return !(e >= 0 && e <= 1); }, "it must be between 0 and 1");
      if (remedy.empty()) continue;
      const std::string where = place(p.input_axes[i], at, call.inputs->cu_seqlens);
      return info.name + (where.empty() ? "" : " of " + where) + " is " + number(x) + "; " + remedy;
    }
  return {};
}

// Memory of a call's own for what it writes.
struct Copies {
  std::vector<std::vector<double>> memory;

  void* bytes(std::size_t n) { return memory.emplace_back(n / sizeof(double) + 8).data(); }
  State state(ConstState from) {
    if (!from.data) return {};
    State to{bytes(from.bytes), from.bytes};
    std::memcpy(to.data, from.data, from.bytes);
    return to;
  }
  Tensor tensor(const Plan::Body& body, const Axes& axes, std::ptrdiff_t batch, std::ptrdiff_t time,
                std::ptrdiff_t pairs) {
    Tensor t;
    t.type = body.options.type, t.rank = static_cast<int>(axes.size());
    std::ptrdiff_t stride = 1;
    for (std::size_t d = axes.size(); d-- > 0;) {
      t.extent[d] = body.extent(axes[d], batch, time, pairs), t.stride[d] = stride;
      stride *= t.extent[d];
    }
    t.data = bytes(static_cast<std::size_t>(stride) * size_of(t.type));
    return t;
  }
};

std::string no_answer(const Plan::Body& body, const std::string& what) {
  std::string remedy = "look at its keys and gates";
  if (const Term& solver = body.recipe.solver; solver.word == "exact" || solver.word == "cg")
    remedy = "give a larger ridge, or keys that depend less on each other";
  else if (solver.word == "apa") remedy = "give an eps, or keys that depend less on each other";
  return what + " has no answer in this precision; " + remedy;
}

// What a forward that succeeds has left out of its answers.
std::string remark_on(const Plan::Body& body, const families::Lost& lost) {
  const std::int64_t directions = lost.directions, tokens = lost.tokens;
  if (directions == 0) return {};
  const auto several = [](std::int64_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  return body.name + " has dropped " + several(directions, "direction") + " of its keys at " +
         several(tokens, "token") +
         " of its heads: pairs that weigh less than 5e-26 of others are lost in their rounding, and the answers are "
         "those of least norm without them; give a ridge that does not fade, or gates and importances closer to 1";
}

std::string run_on_copies(const Plan::Body& original, const Call& call) {
  // A plan of its own, which counts.
  Plan::Body body = original;
  families::Lost lost;
  for (Step& step : body.pipeline.steps)
    if (step.kernel && step.kernel->name == families::givens_name) step.set_options(families::GivensOptions{&lost});
  Copies copies;
  Call trial = call;
  const Pipeline& p = body.pipeline;
  const std::ptrdiff_t batch = call.inputs->cu_seqlens.empty() ? body.shape.batch : 1;
  Outputs written;
  const bool forwards = call.outputs != nullptr;
  const auto& infos = forwards ? p.outputs : p.inputs;
  const auto& axes = forwards ? p.output_axes : p.input_axes;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (!forwards && !(call.d_inputs->get(infos[i].name))) continue;
    if (std::any_of(axes[i].begin(), axes[i].end(), [&](char letter) { return letter == 'L'; })) continue;
    written[infos[i].name] = copies.tensor(body, axes[i], batch, std::max<std::ptrdiff_t>(call.time, 0), call.pairs);
  }
  (forwards ? trial.outputs : trial.d_inputs) = &written;
  if (forwards) trial.state = copies.state(call.state);
  else trial.d_initial = copies.state(call.d_initial);
  trial.workspace.data = copies.bytes(call.workspace.bytes);
  const Status status = forwards ? run_forward(body, trial) : run_backward(body, trial);
  if (status == Status::ok) return remark_on(body, lost);
  if (status == Status::state_full) {
    const std::int64_t* const counts = p.counted ? body.counts(ConstState(call.state)) : nullptr;
    std::int64_t most = 0;
    for (int n = 0; counts && n < body.shape.batch; ++n) most = std::max(most, counts[n]);
    return body.name + " has no room for " + std::to_string(call.time) + " more tokens" +
           (counts ? " after " + std::to_string(most) : std::string()) +
           "; reset the state, or plan with more levels or a longer state";
  }
  if (status != Status::out_of_domain) return std::string(to_string(status));
  if (std::string sentence = suspicious_input(body, call); !sentence.empty()) return sentence;
  for (std::size_t i = 0; i < infos.size(); ++i)
    if (const Tensor t = written.get(infos[i].name)) {
      Index at;
      double x = 0;
      if (find_element(
              t, [](double e) { return !std::isfinite(e); }, at, x))
        return no_answer(body, (forwards ? "" : "the gradient of ") + infos[i].name + " of " +
                                   place(axes[i], at, call.inputs->cu_seqlens));
    }
  return no_answer(body, body.name);
}

}  // namespace

std::string describe(const Shape& s) {
  return "batch " + std::to_string(s.batch) + ", heads " + std::to_string(s.heads) + ", key_heads " +
         std::to_string(s.key_heads) + ", key_dim " + std::to_string(s.key_dim) + ", value_dim " +
         std::to_string(s.value_dim);
}

std::string names_of(std::span<const Form> forms) {
  std::string list;
  for (const Form form : forms) list += (list.empty() ? "" : ", ") + std::string(to_string(form));
  return list;
}

std::string sentence_of(const Plan::Body& body, const Call& call, const Fault& fault) {
  const std::string tensor(fault.tensor), got = std::to_string(fault.got), want = std::to_string(fault.want);
  const std::string sequence = fault.sequence < 0 ? "" : " of sequence " + std::to_string(fault.sequence);
  switch (fault.status) {
    case Status::ok:
      return {};
    case Status::missing_input:
      return "the input " + tensor + " of " + body.name + " is missing";
    case Status::bad_type:
      return tensor + " is " + std::string(to_string(static_cast<Type>(fault.got))) + " but the plan takes " +
             std::string(to_string(body.options.type)) +
             (body.options.tensors ? " and " + std::string(to_string(*body.options.tensors)) : "") +
             (fault.got < 2 ? "; set Options::type" : "; set Options::tensors");
    case Status::bad_shape:
      if (tensor.starts_with("cu_seqlens") && !fault.axis) return tensor + " must begin with 0 and never fall";
      if (!fault.axis) return tensor + " has " + got + " axes, not " + want;
      if (tensor == "step") return "step takes one token, not " + got + "; use forward";
      return std::string(axis_name(fault.axis)) + " " + got + " of " + tensor + " does not match " + want +
             (fault.axis == 'T' || fault.axis == 'P' ? " of the other inputs"
                                                     : " of the plan (" + describe(body.shape) + ")");
    case Status::not_supported: {
      const auto& outputs = body.pipeline.outputs;
      if (std::any_of(outputs.begin(), outputs.end(), [&](const InputInfo& o) { return o.name == tensor; }))
        return "the output " + tensor + " of " + body.name + " has no gradient; leave it out of d_outputs";
      if (tensor == state_type_name)
        return "a plan with state_type " + std::string(to_string(body.options.state_type.value_or(Type::f32))) +
               " has no backward: its state is rounded; make the plan for gradients without state_type";
      return body.name + " has no form '" + tensor + "'; it has " + names_of(body.forms);
    }
    case Status::small_state:
    case Status::small_workspace:
      return (fault.tensor.starts_with("d_") ? "" : "the ") + tensor + sequence + " has " + got + " bytes but " +
             want + " are needed; ask footprint()";
    case Status::state_full:
      if (fault.axis == 'L') {
        const auto tokens = [](std::ptrdiff_t levels) { return std::to_string(std::int64_t{1} << (levels - 1)); };
        return body.name + " has " + got + " levels, which weigh " + (fault.got < 1 ? "no" : tokens(fault.got)) +
               " tokens (2^(levels - 1)), and this call goes beyond them: it needs " + want + " levels; " +
               (body.pipeline.letters.contains('L')
                    ? "plan with that many, levels(" + want + ") in a recipe or levels=" + want + " of a layer"
                    : "give the input " + tensor + " that many numbers per token and head");
      }
      return "the state" + sequence + " has room for " + want + " pairs and would hold " + got +
             " after this call; move it into a larger buffer with grow()";
    case Status::bad_state:
      if (fault.axis == 'N')
        return "the " + tensor + " says that it has room for " + got +
               " pairs: no call has left that; reset() it first" +
               (fault.tensor == "d_final" ? ", a gradient with zero()" : "");
      return "the state" + sequence + " counts " + got + " tokens" +
             (fault.got < 0 ? std::string() : " and has room for " + want) +
             ": no call has left that; reset() it first";
    case Status::unknown_name: {
      if (tensor.empty()) return "more than " + want + " tensors are named in one list; no layer has so many";
      const bool of_output =
          (call.outputs && call.outputs->find(tensor)) || (call.d_outputs && call.d_outputs->find(tensor));
      const auto& known = of_output ? body.pipeline.outputs : body.pipeline.inputs;
      return body.name + " has no " + (of_output ? "output" : "input") + " '" + tensor + "'; its " +
             (of_output ? "outputs" : "inputs") + " are " + list_of(known);
    }
    case Status::overlap: {
      const bool backwards = call.d_inputs != nullptr;
      const std::string what = backwards && call.inputs->find(tensor) ? "the gradient of " + tensor : tensor;
      return what + " is written and shares memory with " + std::string(fault.other) + "; give it memory of its own";
    }
    case Status::small_saved:
      return "the buffer for what forward leaves to backward has " + got + " bytes but " + want +
             " are needed; ask footprint().saved";
    case Status::bad_saved:
      return "the buffer `saved` is not what a forward of this call has left: " +
             (fault.axis == 'N'   ? "it comes from another plan than " + body.name + " with " + describe(body.shape)
              : fault.axis == 'F' ? "that went in form " + std::string(to_string(static_cast<Form>(fault.got))) +
                                        ", this one goes in form " + std::string(to_string(call.form))
              : fault.axis == 'T' ? "that had " + got + " tokens, this one has " + want
              : fault.axis == 'B' ? "its packed sequences have other lengths"
                                  : "no forward has filled it, or one that failed") +
             "; give forward and backward of one call the same buffer, or leave it out";
    case Status::misaligned:
      return tensor + " does not begin at a multiple of " + want + " bytes";
    default:
      return std::string(to_string(fault.status));
  }
}

std::string diagnose_call(const Plan::Body& body, const Call& call) {
  if (const Fault fault = check_call(body, call); fault.status != Status::ok) return sentence_of(body, call, fault);
  Call plain = call;
  if (const Fault fault = use_saved(body, plain); fault.status != Status::ok) return sentence_of(body, call, fault);
  plain.saved = {};
  return run_on_copies(body, plain);
}

}  // namespace ttr
