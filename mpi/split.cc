// A Split: what is checked, which way is taken, and what all ways have in common.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "mpi/gather.h"
#include "mpi/halo.h"
#include "mpi/ring.h"
#include "mpi/split_body.h"
#include "plan/pipeline.h"

namespace ttr::mpi {
namespace {

// A text that no other number has.
std::string exact(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", x);
  return text;
}

// Everything that must be the same on all ranks.
std::string text_of(const Plan& plan, const Settings& settings, std::size_t largest_message) {
  const Shape& s = plan.shape();
  std::string text = plan.name() + " " + to_string(plan.recipe());
  for (const auto& [name, value] : plan.options().settings) text += ":" + name + "=" + value;
  text += " batch=" + std::to_string(s.batch) + " heads=" + std::to_string(s.heads) + "/" +
          std::to_string(s.key_heads) + " key_dim=" + std::to_string(s.key_dim) +
          " value_dim=" + std::to_string(s.value_dim) + " type=" + std::string(to_string(plan.options().type)) +
          " scale=" + exact(plan.scale()) + " chunk=" + std::to_string(plan.options().chunk) +
          " kernel=" + plan.kernel() + " way=" + std::string(to_string(settings.way)) +
          " form=" + std::string(to_string(settings.form)) + " groups=" + std::to_string(settings.groups) +
          (settings.shares ? " shares" : "") + " rewind=" + std::to_string(plan.options().rewind) +
          " message=" + std::to_string(largest_message);
  const auto type = [&](const char* name, const std::optional<Type>& given) {
    if (given) text += " " + std::string(name) + "=" + std::string(to_string(*given));
  };
  type("tensors", plan.options().tensors), type("state_type", plan.options().state_type);
  if (!plan.options().target.empty()) text += " target=" + plan.options().target;
  return text;
}

bool has_form(const Plan& plan, Form form) {
  return form == Form::best || std::find(plan.forms().begin(), plan.forms().end(), form) != plan.forms().end();
}

// What a forward of a relay is expected to take, in units of a forward of a piece: more groups fill the ranks sooner, and
// heads that are taken out of rows of several are slower to read (measured: 1.75 of the time for rows of 256 bytes).
double relay_cost(const Plan& plan, const Groups& groups, int ranks) {
  const double bytes = static_cast<double>(size_of(plan.options().type)) * groups.shape.heads *
                       std::min(plan.body()->key_width, plan.body()->value_width);
  const double slower = groups.by_heads > 1 ? 1 + 0.75 * (256 / bytes) * (256 / bytes) : 1;
  return slower * (groups.count() + ranks - 1) / groups.count();
}

Groups groups_of(const Plan& plan, int ranks, int wanted) {
  if (plan.options().rewind > 0) return Groups::of(plan.shape(), 1, false);
  const bool heads = heads_part(plan);
  if (wanted > 0) return Groups::of(plan.shape(), wanted, heads);
  Groups best = Groups::of(plan.shape(), 1, false);
  if (ranks == 1) return best;
  for (int count = 2; count <= 8 * ranks; ++count) {
    const Groups one = Groups::of(plan.shape(), count, heads);
    if (relay_cost(plan, one, ranks) < relay_cost(plan, best, ranks)) best = one;
    if (one.count() < count) break;  // there are no more
  }
  return best;
}

Plan plan_of_group(const Plan& plan, const Groups& groups) {
  return groups.count() == 1 ? plan : ttr::plan(plan.name(), groups.shape, plan.options());
}

std::string complaint_of(const Plan& plan, const Settings& settings) {
  if (!plan.options().causal || plan.body()->pipeline.noncausal)
    return plan.name() +
           " is planned without causality: every query sees all pairs, so that a piece of time has no state to hand "
           "on. Plan "
           "it with causal = true";
  if (!has_form(plan, settings.form))
    return plan.name() + " has no form '" + std::string(to_string(settings.form)) + "'";
  if (settings.groups < 0) return "groups is " + std::to_string(settings.groups) + "; it must be 0 or positive";
  const std::vector<Way> ways = Split::ways(plan);
  if (settings.way != Way::best && std::find(ways.begin(), ways.end(), settings.way) == ways.end())
    return plan.name() + " cannot be split by the way '" + std::string(to_string(settings.way)) + "': " +
           (settings.way == Way::scan     ? "its state is not an affine function of the state before that ttr knows"
            : settings.way == Way::halo   ? "its state is more than the last tokens"
            : settings.way == Way::gather ? "its state is more than the pairs of its tokens"
                                          : "it is not attention over all pairs by its weights alone") +
           "; relay is there for every layer";
  return {};
}

// What can be said of a state (or a gradient of one) before the lengths of the pieces are known; `read`: whether its contents
// are. Sizes of states that grow are checked again when they are.
std::string complaint_of(const Plan& plan, const std::string& name, State state, bool read) {
  if (!state.data) return {};
  const std::size_t bytes = plan.body()->layout.bytes(0);
  if (state.bytes < bytes)
    return name + " has " + std::to_string(state.bytes) + " bytes; it needs at least " + std::to_string(bytes) +
           " (Split::state_bytes)";
  if (reinterpret_cast<std::uintptr_t>(state.data) % 8 != 0)
    return name + " lies at an address that is not a multiple of 8";
  if (read && !plan.state_tensor(state, plan.states()[0].name))
    return name + " is none of this plan, or not all of one: reset() or forward must have made it, of as many bytes";
  return {};
}

// A name that the plan does not have would be left out without a word when tensors are divided into groups.
template <class Tensors>
std::string stranger(const Plan& plan, const Tensors& tensors, std::span<const InputInfo> infos, const char* what) {
  for (const std::string_view name : tensors.names())
    if (std::none_of(infos.begin(), infos.end(), [&](const InputInfo& info) { return info.name == name; }))
      return plan.name() + " has no " + what + " '" + std::string(name) + "'";
  return {};
}

// Tensors of no tokens lie nowhere (an empty vector has no address), and yet they are given: they get a place that nobody
// reads or writes.
template <class Tensors>
Tensors given(Tensors all) {
  static double nowhere = 0;
  for (auto& t : all.tensors())
    if (!t.data && std::any_of(t.extent.begin(), t.extent.begin() + t.rank, [](std::ptrdiff_t n) { return n == 0; }))
      t.data = &nowhere;
  return all;
}

}  // namespace

std::string_view to_string(Way way) noexcept {
  switch (way) {
    case Way::best:
      return "best";
    case Way::relay:
      return "relay";
    case Way::scan:
      return "scan";
    case Way::ring:
      return "ring";
    case Way::halo:
      return "halo";
    case Way::gather:
      return "gather";
  }
  return "?";
}

std::vector<Way> Split::ways(const Plan& plan) {
  std::vector<Way> all = {Way::relay};
  if (Maps::of(plan)) all.push_back(Way::scan);
  if (ring_of(plan)) all.push_back(Way::ring);
  if (halo_of(plan)) all.push_back(Way::halo);
  if (gathers(plan)) all.push_back(Way::gather);
  return all;
}

Split::Body::Body(const Plan& p, MPI_Comm comm, const Settings& s)
    : plan(p),
      settings(s),
      channel(comm, s.patience, p.options().threads > 1, s.idle),
      part(p),
      pairs(p.body()->pipeline.pairs),
      grows(p.body()->layout.grows()) {
  channel.same(text_of(plan, settings, channel.largest), "the plan");
  channel.agree(complaint_of(plan, settings));
  groups = groups_of(plan, channel.ranks(), settings.groups);
  part = plan_of_group(plan, groups);
  if (settings.way == Way::scan || settings.way == Way::best) maps = Maps::of(plan);
  way = settings.way;
  const std::optional<std::int64_t> halo = halo_of(plan);
  span = halo.value_or(0);
  if (way == Way::best && halo) way = Way::halo;  // nobody waits, and no work is done twice
  if (way == Way::best) {
    // In the same units (docs/scaling.md) a scan takes two, and of three ranks and more the map: as much again for every
    // V columns that it has.
    const double relay = relay_cost(plan, groups, channel.ranks());
    const double map = channel.ranks() < 3     ? 0
                       : maps && maps->dense() ? static_cast<double>(plan.body()->key_width) / plan.shape().value_dim
                                               : 0.5;
    way = maps && relay > 2 + map ? Way::scan : Way::relay;
    if (gathers(plan) && relay > 2 - 1.0 / channel.ranks()) way = Way::gather;  // the last rank has most of the work
    if (way == Way::relay) maps.reset();
  }
  if (way == Way::scan) {  // one for each few sequences, so that something is to be done while maps are on their way
    const Groups few = Groups::of(plan.shape(), settings.groups > 0 ? settings.groups : 4, false);
    const Plan of_few = plan_of_group(plan, few);
    if (std::optional<Maps> own = Maps::of(of_few)) groups = few, part = of_few, maps = std::move(own);
    else groups = Groups::of(plan.shape(), 1, false), part = plan;
  }
}

Split::Split(const Plan& plan, MPI_Comm comm, const Settings& settings)
    : body_(std::make_unique<Body>(plan, comm, settings)) {}
Split::~Split() = default;
Split::Split(Split&&) noexcept = default;

int Split::rank() const noexcept { return body_->channel.rank(); }
int Split::ranks() const noexcept { return body_->channel.ranks(); }
Way Split::way() const noexcept { return body_->way; }
int Split::groups() const noexcept { return body_->groups.count(); }
void Split::set_patience(double seconds) noexcept { body_->channel.patience = seconds; }
const Counts& Split::counts() const noexcept { return body_->channel.counts; }
void Split::reset_counts() noexcept { body_->channel.counts = {}; }

std::size_t Split::Body::bytes_of(const Plan& p, std::int64_t time) const { return p.footprint(time).state; }

Workspace Split::Body::work_for(const Plan& p, std::int64_t time, bool backward) {
  const Footprint bytes = p.footprint(time, settings.form);
  const std::size_t wanted = std::max<std::size_t>(backward ? bytes.backward : bytes.workspace, 64);
  if (work.size() < wanted) work.resize(wanted);
  return {work.data(), work.size()};
}

void Split::Body::note(Status status, const std::function<std::string()>& sentence) {
  if (status == Status::ok || !fault.empty()) return;
  fault = sentence();
  if (fault.empty()) fault = std::string(to_string(status));
}

std::size_t Split::state_bytes(std::int64_t time, std::int64_t kept) const {
  if (!body_->grows) return body_->bytes_of(body_->plan, std::max<std::int64_t>(time, 1));
  const std::vector<std::int64_t> all = body_->channel.all_of({&time, 1});
  if (body_->way == Way::ring)
    return body_->bytes_of(body_->plan, std::max<std::int64_t>(time + (rank() ? 0 : kept), 1));
  std::int64_t sum = kept;
  for (int r = 0; r <= rank(); ++r) sum += all[static_cast<std::size_t>(r)];
  return body_->bytes_of(body_->plan, std::max<std::int64_t>(sum, 1));
}

Piece Split::Body::open(const Inputs& inputs, State state, const std::string& call, std::string complaint) {
  Piece piece;
  for (const InputInfo& info : plan.inputs()) {
    const ConstTensor tensor = inputs.get(info.name);
    if (!tensor) continue;
    const std::size_t axis = Axes(info.shape).find_any("TP");
    if (axis == Axes::npos || static_cast<int>(axis) >= tensor.rank) continue;
    piece.tokens = tensor.extent[axis] / (Axes(info.shape)[axis] == 'P' ? pairs : 1);
    break;
  }
  const auto& cu = inputs.cu_seqlens;
  std::string text = call;
  for (const std::int64_t end : cu) text += "," + std::to_string(end);
  if (channel.rank() == 0 && grows && state.data)
    for (int n = 0; n < plan.shape().batch; ++n) piece.kept = std::max(piece.kept, plan.tokens_kept(state, n));
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  const std::int64_t mine[] = {piece.tokens, static_cast<std::int64_t>(hash), piece.kept, complaint.empty() ? 0 : 1};
  const std::vector<std::int64_t> all = channel.all_of(mine);
  bool differs = false, complains = false;
  std::int64_t before = 0, total = 0;
  for (int r = 0; r < channel.ranks(); ++r) {
    const std::int64_t* of = &all[static_cast<std::size_t>(r) * 4];
    if (r < channel.rank()) before += of[0];
    total += of[0], piece.lengths.push_back(of[0]);
    differs |= of[1] != all[1], complains |= of[3] != 0;
  }
  piece.kept = all[2];
  if (differs) channel.same(text, "the call (what it is, and its cu_seqlens)");
  if (complains) channel.agree(complaint);
  if (total < channel.ranks()) {
    if (channel.ranks() == 1) return piece;
    throw Error("there are " + std::to_string(channel.ranks()) + " ranks and " + std::to_string(total) +
                    " tokens in all; take no more ranks than tokens",
                "rank");
  }
  if (!cu.empty()) {
    if (cu.size() != static_cast<std::size_t>(plan.shape().batch) + 1 || cu.front() != 0 || cu.back() != total)
      throw Error("cu_seqlens has " + std::to_string(cu.size()) + " numbers from " + std::to_string(cu.front()) +
                      " to " + std::to_string(cu.back()) + "; it needs " + std::to_string(plan.shape().batch + 1) +
                      " from 0 to the tokens of all ranks, " + std::to_string(total),
                  "cu_seqlens");
    for (const std::int64_t end : cu) piece.packed.push_back(std::clamp(end - before, std::int64_t{0}, piece.tokens));
  }
  return piece;
}

void Split::forward(const Inputs& all_inputs, State state, const Outputs& all_outputs, State start) {
  Body& b = *body_;
  const Inputs inputs = given(all_inputs);
  const Outputs outputs = given(all_outputs);
  b.fault.clear();
  std::string complaint;
  const bool has_state = !b.plan.states().empty();
  if (has_state && !state.data) complaint = "forward needs a state";
  if (has_state && complaint.empty()) complaint = complaint_of(b.plan, "the state", state, rank() == 0);
  if (has_state && complaint.empty()) complaint = complaint_of(b.plan, "start", start, false);
  if (complaint.empty()) complaint = stranger(b.plan, inputs, b.plan.inputs(), "input");
  if (complaint.empty()) complaint = stranger(b.plan, outputs, b.plan.outputs(), "output");
  Piece piece = b.open(inputs, rank() == 0 ? state : State{}, "forward", complaint);
  if (has_state) {
    const bool own = b.way == Way::ring;  // the pairs of the piece alone
    const std::size_t bytes = b.bytes_of(b.plan, !b.grows ? 1
                                                 : own    ? piece.tokens + (rank() ? 0 : piece.kept)
                                                          : piece.room(rank()));
    if (b.grows || start.data) {
      if (state.bytes < bytes)
        complaint = "the state has " + std::to_string(state.bytes) + " bytes; it needs " + std::to_string(bytes) +
                    " (Split::state_bytes)";
      if (start.data && start.bytes < state.bytes) complaint = "start has fewer bytes than the state";
      b.channel.agree(complaint);
    }
    if (own) b.ring_forward(piece, inputs, state, outputs, start);
    else if (b.halo_fits(piece)) b.halo_forward(piece, inputs, state, outputs, start);
    else if (b.way == Way::scan) b.scan_forward(piece, inputs, state, outputs, start);
    else if (b.way == Way::gather) b.gather_forward(piece, inputs, state, outputs, start);
    else b.relay_forward(piece, inputs, state, outputs, start);
  } else {  // nothing is handed on
    Inputs local = inputs;
    local.cu_seqlens = piece.packed;
    const Workspace work = b.work_for(b.plan, std::max<std::int64_t>(piece.tokens, 1), false);
    const Stopwatch stopwatch(b.channel.counts.local);
    b.note(b.plan.forward(local, state, outputs, work, b.settings.form),
           [&] { return b.plan.diagnose(local, state, outputs, work, b.settings.form); });
  }
  b.channel.flush();
  b.channel.agree(b.fault);
}

void Split::backward(const Inputs& all_inputs, ConstState start, const Inputs& all_d_outputs, ConstState d_final,
                     const Outputs& all_d_inputs, State d_initial) {
  Body& b = *body_;
  const Inputs inputs = given(all_inputs), d_outputs = given(all_d_outputs);
  const Outputs d_inputs = given(all_d_inputs);
  b.fault.clear();
  std::string complaint;
  const bool has_state = !b.plan.states().empty();
  if (has_state && !start.data)
    complaint = "backward needs the state at the beginning of the piece, which forward leaves in `start`";
  if (d_final.data && rank() + 1 < ranks()) complaint = "d_final is given by the last rank alone";
  if (d_final.data && b.way == Way::ring)
    complaint = "the way 'ring' takes no gradient of the final state, whose pairs lie on all ranks; take 'relay'";
  if (has_state) {
    const auto check = [&](const char* name, ConstState s, bool read) {
      if (complaint.empty()) complaint = complaint_of(b.plan, name, {const_cast<void*>(s.data), s.bytes}, read);
    };
    check("start", start, true), check("d_final", d_final, true), check("d_initial", d_initial, false);
  }
  if (complaint.empty()) complaint = stranger(b.plan, inputs, b.plan.inputs(), "input");
  if (complaint.empty()) complaint = stranger(b.plan, d_outputs, b.plan.outputs(), "output");
  if (complaint.empty()) complaint = stranger(b.plan, d_inputs, b.plan.inputs(), "input");
  std::string call = "backward";
  for (const std::string_view name : d_inputs.names()) call += " " + std::string(name);
  const State first{const_cast<void*>(start.data), start.bytes};  // only read
  const Piece piece = b.open(inputs, rank() == 0 ? first : State{}, call, complaint);
  for (const InputInfo& info : b.plan.inputs())
    if (const Tensor d = d_inputs.get(info.name)) fill(d, 0);
  if (!has_state) {
    Inputs local = inputs;
    local.cu_seqlens = piece.packed;
    const Workspace work = b.work_for(b.plan, std::max<std::int64_t>(piece.tokens, 1), true);
    const Stopwatch stopwatch(b.channel.counts.local);
    b.note(b.plan.backward(local, start, d_outputs, {}, d_inputs, {}, work, b.settings.form, Gradients::add),
           [&] { return b.plan.diagnose(local, start, d_outputs, {}, d_inputs, {}, work, b.settings.form); });
  } else if (b.way == Way::ring) {
    b.ring_backward(piece, inputs, start, d_outputs, d_inputs, d_initial);
  } else if (b.halo_fits(piece)) {
    b.halo_backward(piece, inputs, start, d_outputs, d_final, d_inputs, d_initial);
  } else if (b.way == Way::scan) {
    b.scan_backward(piece, inputs, start, d_outputs, d_final, d_inputs, d_initial);
  } else if (b.way == Way::gather) {
    b.gather_backward(piece, inputs, start, d_outputs, d_final, d_inputs, d_initial);
  } else {
    b.relay_backward(piece, inputs, start, d_outputs, d_final, d_inputs, d_initial);
  }
  if (!b.settings.shares) b.sum_gradients(d_inputs);
  b.channel.flush();
  b.channel.agree(b.fault);
}

void Split::Body::sum_gradients(const Outputs& d_inputs) {
  if (channel.ranks() == 1) return;
  for (const InputInfo& info : plan.inputs()) {
    const Tensor d = d_inputs.get(info.name);
    if (!d || Axes(info.shape).has_any("TP")) continue;
    Tensor dense = d;
    std::ptrdiff_t count = 1;
    for (int i = d.rank; i-- > 0;)
      dense.stride[static_cast<std::size_t>(i)] = count, count *= d.extent[static_cast<std::size_t>(i)];
    std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(d.type));
    dense.data = bytes.data();
    copy_numbers(d, dense);
    if (d.type == Type::f64)
      channel.sum(std::span(static_cast<double*>(dense.data), static_cast<std::size_t>(count)));
    else if (d.type == Type::f32)
      channel.sum(std::span(static_cast<float*>(dense.data), static_cast<std::size_t>(count)));
    else note(Status::bad_type, [&] { return info.name + ": gradients of inputs without time must be f32 or f64"; });
    copy_numbers(dense, d);
  }
}

}  // namespace ttr::mpi
