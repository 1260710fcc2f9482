// `ttr bench state`: what a state in fewer bytes (Options::state_type) costs in accuracy and gains in speed.
//
// Accuracy: the same tokens (exact in float) through a plan in double, one in float and one with the state type, from a
// fresh state: one at a time where the state has a fixed size, --call at a time where pairs are kept, since what a call
// brings itself is read as it is and only the pairs before it are rounded.
//
//   error at t = max |o - o_f64| / max |o_f64|   over the 100 tokens before t,  t = 1e3, 1e4, .. and --tokens
//
// Keys, values and queries are independent normal numbers (of unit length where the layer asks for that). The seeds of
// SplitMix are places in one stream of numbers, so each input and each call has one far from the others: where values
// are keys moved by a place, answers have a mean in which roundings vanish.
//
// Speed: a decode step of K = V = --step-dim on one thread, with a state that no cache holds (--bytes in float): as many
// sequences as that takes, or as many pairs of one. Steps of float and of the state type take turns; the least
// counts, in time of the processor, so that other programs on the machine delay it less.
#include <fmt/core.h>

#include <time.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "aside.h"
#include "bench.h"
#include "commands.h"
#include "json.h"
#include "progress.h"
#include "runner.h"
#include "text_table.h"

namespace ttr::cli {
namespace {

constexpr std::int64_t window = 100;

Plan plan_of(const std::string& layer, const Shape& shape, Type type, std::optional<Type> state) {
  Options options;
  options.type = type, options.state_type = state;
  return plan(layer, shape, options);
}

bool keeps_pairs(const Plan& plan) { return plan.tokens_kept({}) >= 0; }

// A plan with its memory, for calls of up to `length` tokens.
template <class T>
class Decoder {
 public:
  Decoder(Plan plan, std::int64_t length, std::int64_t pairs) : plan_(std::move(plan)) {
    std::size_t work = plan_.footprint(length).workspace;
    if (keeps_pairs(plan_)) {
      state_.resize(plan_.footprint(pairs).state / sizeof(double) + 1);
      work = std::max(work, plan_.footprint(pairs).workspace);
    } else {
      state_.resize(plan_.footprint(1).state / sizeof(double) + 1);
    }
    work_.resize(work / sizeof(double) + 1);
    if (plan_.reset(state()) != Status::ok) throw Error("the state of " + plan_.name() + " cannot be reset");
    resize_outputs(length);
  }
  void resize_outputs(std::int64_t length) {
    for (const InputInfo& info : plan_.outputs()) outputs_[info.name].resize(count(plan_, info.shape, length));
  }

  void set(const NamedNumbers& inputs, std::int64_t length) {
    in_.clear(), out_.clear();
    for (const InputInfo& info : plan_.inputs()) {
      std::vector<T>& to = inputs_[info.name];
      const Numbers& from = inputs.at(info.name);
      to.assign(from.begin(), from.end());
      in_[info.name] = dense_tensor<ConstTensor>(plan_, to.data(), info.shape, length);
    }
    for (const InputInfo& info : plan_.outputs())
      out_[info.name] = dense_tensor<Tensor>(plan_, outputs_.at(info.name).data(), info.shape, length);
  }
  void run(bool answers = true) {
    const Outputs none;
    const Workspace work{work_.data(), work_.size() * sizeof(double)};
    if (const Status s = plan_.forward(in_, state(), answers ? out_ : none, work); s != Status::ok)
      throw Error(plan_.name() + ": " + plan_.diagnose(in_, state(), out_, work));
  }
  // The first output of token t of the call.
  void answer(std::int64_t t, Numbers& to) const {
    const InputInfo& info = plan_.outputs().front();
    const std::size_t one = count(plan_, info.shape, 1);
    const T* const row = outputs_.at(info.name).data() + static_cast<std::size_t>(t) * one;
    to.insert(to.end(), row, row + one);
  }
  const Plan& plan() const { return plan_; }
  State state() { return {state_.data(), state_.size() * sizeof(double)}; }

 private:
  Plan plan_;
  std::vector<double> state_, work_;
  std::map<std::string, std::vector<T>> inputs_, outputs_;
  Inputs in_;
  Outputs out_;
};

// `call`: its first token, or another number that no other call has.
NamedNumbers random_inputs(const Plan& plan, std::int64_t time, std::int64_t call) {
  NamedNumbers inputs;
  for (const InputInfo& info : plan.inputs()) {
    const std::uint64_t place = (static_cast<std::uint64_t>(call) << 22) + (std::uint64_t{inputs.size()} << 56);
    Numbers& numbers = inputs[info.name] = random_input(plan, info, time, place);
    for (double& x : numbers) x = static_cast<double>(static_cast<float>(x));
  }
  return inputs;
}

// What this thread has had of a processor.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Line {
  std::string layer, state_type;
  std::vector<double> f32, compact;  // errors at the points
  double f32_bytes = 0, bytes = 0, f32_seconds = 0, seconds = 0;
};

void measure_error(Line& line, Type type, const StateOptions& o, const std::vector<std::int64_t>& points,
                   Progress& progress) {
  const Shape shape{1, 1, 0, o.dim, o.dim};
  const Plan wide = plan_of(line.layer, shape, Type::f64, {});
  const std::int64_t length = keeps_pairs(wide) ? o.call : 1;
  Decoder<double> truth(wide, length, o.tokens);
  Decoder<float> single(plan_of(line.layer, shape, Type::f32, {}), length, o.tokens);
  Decoder<float> compact(plan_of(line.layer, shape, Type::f32, type), length, o.tokens);
  NamedNumbers parameters = random_inputs(wide, length, -1);  // what has no time stays as it is
  Numbers a, b, c;
  for (std::int64_t t = 0, point = 0; t < o.tokens && !interrupted(); t += length) {
    const std::int64_t now = std::min(length, o.tokens - t);
    NamedNumbers inputs = random_inputs(wide, now, t);
    for (const InputInfo& info : wide.inputs())
      if (info.shape.find_first_of("TP") == std::string::npos) inputs[info.name] = parameters[info.name];
    truth.set(inputs, now), single.set(inputs, now), compact.set(inputs, now);
    truth.run(), single.run(), compact.run();
    for (std::int64_t i = 0; i < now; ++i) {
      const std::int64_t at = t + i, end = points[static_cast<std::size_t>(point)];
      if (at < end - window) continue;
      truth.answer(i, a), single.answer(i, b), compact.answer(i, c);
      if (at + 1 < end) continue;
      line.f32.push_back(relative_error(b, a)), line.compact.push_back(relative_error(c, a));
      a.clear(), b.clear(), c.clear();
      ++point;
    }
    if (t % 4096 < length) progress.update(static_cast<double>(t), static_cast<double>(o.tokens), line.layer);
  }
}

void measure_speed(Line& line, Type type, const StateOptions& o) {
  Shape shape{1, o.heads, 0, o.step_dim, o.step_dim};
  std::int64_t pairs = 1;
  {
    const Plan one = plan_of(line.layer, shape, Type::f32, {});
    const double bytes = static_cast<double>(o.bytes);
    if (keeps_pairs(one)) {
      pairs = static_cast<std::int64_t>(bytes / static_cast<double>(one.footprint(2).state - one.footprint(1).state));
    } else {
      shape.batch = static_cast<int>(std::ceil(bytes / static_cast<double>(one.footprint(1).state)));
    }
  }
  const std::int64_t room = pairs + o.runs * 2 + 2;
  Decoder<float> single(plan_of(line.layer, shape, Type::f32, {}), 1, room);
  Decoder<float> compact(plan_of(line.layer, shape, Type::f32, type), 1, room);
  for (Decoder<float>* d : {&single, &compact}) {
    if (keeps_pairs(d->plan()))  // filled without asking for answers
      for (std::int64_t t = 0; t < pairs; t += 1024) {
        const std::int64_t now = std::min<std::int64_t>(1024, pairs - t);
        Decoder<float>& all = *d;
        all.resize_outputs(now);
        all.set(random_inputs(all.plan(), now, t), now);
        all.run(false);
      }
    d->set(random_inputs(d->plan(), 1, pairs), 1);
    d->run();
  }
  const auto parts_bytes = [&](Decoder<float>& d) {
    return static_cast<double>(d.plan().footprint(keeps_pairs(d.plan()) ? pairs : 1).state);
  };
  line.f32_bytes = parts_bytes(single), line.bytes = parts_bytes(compact);
  std::vector<double> times[2];
  for (int run = 0; run < o.runs; ++run)
    for (int which = 0; which < 2; ++which) {
      const double start = thread_seconds();
      (which == 0 ? single : compact).run();
      times[which].push_back(thread_seconds() - start);
    }
  line.f32_seconds = *std::min_element(times[0].begin(), times[0].end());
  line.seconds = *std::min_element(times[1].begin(), times[1].end());
}

int bench_state(const StateOptions& given) {
  StateOptions o = given;
  if (o.quick) o.tokens = std::min<std::int64_t>(o.tokens, 2000), o.bytes = 1 << 20, o.runs = 3;
  const auto check = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most)
      throw Error(fmt::format("{} is {}; it can be {} to {}", name, value, least, most), name);
  };
  check("--tokens", o.tokens, 1000, 100'000'000), check("--dim", o.dim, 1, 1024), check("--call", o.call, 1, 8192);
  check("--step-dim", o.step_dim, 1, 1024), check("--heads", o.heads, 1, 1024), check("--runs", o.runs, 1, 10'000);
  check("--bytes", o.bytes, 1 << 10, std::int64_t{1} << 34);
  std::vector<std::int64_t> points;
  for (std::int64_t t = 1000; t < o.tokens; t *= 10) points.push_back(t);
  points.push_back(o.tokens);
  struct Subject {
    std::string layer;
    Type type;
  };
  std::vector<Subject> subjects;
  if (o.layers.empty()) {
    for (const char* layer : {"retnet", "mamba-2", "gla", "gated-deltanet", "kda", "rwkv-7", "mlstm", "mamba-1"})
      subjects.push_back({layer, Type::bf16});
    for (const char* layer : {"softmax-attention", "forgetting-attention"})
      for (const Type type : {Type::bf16, Type::f16, Type::i8}) subjects.push_back({layer, type});
  }
  for (const std::string& layer : o.layers)
    for (const Type type : {Type::bf16, Type::f16, Type::i8}) {
      if (!o.type.empty() && to_string(type) != o.type) continue;
      const TriedPlan tried = try_plan(layer, {1, 1, 0, o.dim, o.dim}, [&] {
        Options options;
        options.state_type = type;
        return options;
      }());
      if (tried) subjects.push_back({layer, type});
      else if (!o.type.empty() || type == Type::bf16) throw Error(tried.error, tried.where);
    }
  Progress progress("bench state", true);
  std::vector<Line> lines;
  for (const Subject& subject : subjects) {
    Line line{subject.layer, std::string(to_string(subject.type)), {}, {}};
    measure_error(line, subject.type, o, points, progress);
    measure_speed(line, subject.type, o);
    lines.push_back(line);
    if (interrupted()) return 128 + interrupted();
  }
  progress.finish();
  if (o.json) {
    Json list = Json::array();
    for (const Line& line : lines) {
      Json errors = Json::array();
      for (std::size_t i = 0; i < points.size(); ++i)
        errors.push(Json::object().set("tokens", points[i]).set("f32", line.f32[i]).set("state", line.compact[i]));
      Json j = Json::object();
      j.set("layer", line.layer).set("state_type", line.state_type).set("d_key", o.dim).set("errors", errors);
      j.set("step_dim", o.step_dim).set("heads", o.heads).set("f32_state_bytes", line.f32_bytes);
      j.set("state_bytes", line.bytes).set("f32_step_seconds", line.f32_seconds).set("step_seconds", line.seconds);
      list.push(j);
    }
    fmt::print("{}\n", list.dump());
    return 0;
  }
  std::vector<std::string> header = {"layer", "state", "bytes", "f32 bytes", "step us", "f32 step us", "faster"};
  for (const std::int64_t t : points) header.push_back(fmt::format("error {:.0e}", static_cast<double>(t)));
  header.push_back(fmt::format("f32 {:.0e}", static_cast<double>(points.back())));
  TextTable table(header);
  for (const Line& line : lines) {
    std::vector<std::string> row = {line.layer,
                                    line.state_type,
                                    short_bytes(line.bytes),
                                    short_bytes(line.f32_bytes),
                                    short_number(1e6 * line.seconds),
                                    short_number(1e6 * line.f32_seconds),
                                    fmt::format("{:.2f}x", line.f32_seconds / line.seconds)};
    for (const double error : line.compact) row.push_back(fmt::format("{:.1e}", error));
    row.push_back(fmt::format("{:.1e}", line.f32.back()));
    table.row(row);
  }
  fmt::print("{}", table.text());
  fmt::print(
      "\nerrors against double at B=1 H=1 K=V={}; steps at H={} K=V={}, one thread, least of {} that took turns\n",
      o.dim, o.heads, o.step_dim, o.runs);
  return 0;
}

}  // namespace

int run_bench_state(const StateOptions& options) {
  const InterruptGuard guard;
  const std::optional<int> code = made_aside([options] { return bench_state(options); });
  return code ? *code : 128 + interrupted();
}

}  // namespace ttr::cli
