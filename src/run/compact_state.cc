#include "run/compact_state.h"

#include <algorithm>

#include "families/family.h"
#include "run/kernel_args.h"
#include "run/partition.h"
#include "run/tasks.h"
#include "simd/half_simd.h"
#include "threads/pool.h"

namespace ttr {
namespace {

using Size = std::ptrdiff_t;

constexpr Size panel_numbers = 8 * 1024;  // 32 KB, about a first-level cache; one key head at least

// Matrices are what a state is large by; vectors beside them (sums of keys, running maxima) stay as exact as they are.
bool is_matrix(const StatePart& part) { return part.extent.size() >= 3; }
bool is_compact(const StatePart& part) { return part.type == Type::bf16; }

std::string parts_named(std::span<const StatePart> parts) {
  std::string names;
  for (const StatePart& part : parts) names += (names.empty() ? "" : ", ") + part.info.name;
  return names;
}

// Key heads that go through the kernel together.
int groups_together(const Plan::Body& body, std::span<const StatePart> parts) {
  Size one = 1;
  for (const StatePart& part : parts)
    if (is_compact(part)) one += static_cast<Size>(numbers(part)) / body.shape.key_heads;
  return static_cast<int>(std::clamp<Size>(panel_numbers / one, 1, body.shape.key_heads));
}

// A seed for the token that a sequence has reached, and a part.
std::uint32_t seed_of(std::int64_t token, std::size_t part) {
  std::uint64_t x = static_cast<std::uint64_t>(token) * 0x9e3779b97f4a7c15u + part + 1;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>(x >> 32);
}

}  // namespace

void apply_state_type(Plan::Body& body) {
  if (!body.options.state_type) return;
  const Type type = *body.options.state_type;
  const std::string named(to_string(type));
  const auto refuse = [&](const std::string& why) {
    throw Error("state_type " + named + ": " + why, "options.state_type");
  };
  if (type != Type::bf16 && type != Type::f16 && type != Type::i8)
    refuse("a state can be bf16, f16 or i8; leave it out for the type of the plan");
  if (body.options.type != Type::f32) refuse("a plan of f64 keeps its state in f64; set type to f32");
  Pipeline& p = body.pipeline;
  if (p.states.empty()) refuse(body.name + " has no state");
  if (body.on_oracle()) refuse(body.name + " runs on the literal solver, which keeps double");
  bool some = std::any_of(p.states.begin(), p.states.end(), [&](const StatePart& part) { return part.type == type; });
  if (some) return;  // a family that keeps pairs has done it
  if (type != Type::bf16)
    refuse(body.name + " keeps no keys and values that attention reads; " + named +
           " is for those, bf16 for matrices");
  for (Step& step : p.steps) {
    if (!step.kernel || step.state < 0 || step.kernel->traits.running || step.kernel->time_unit) continue;
    const std::size_t first = static_cast<std::size_t>(step.state), count = parts_of(body, step).size();
    const std::span<StatePart> parts = std::span(p.states).subspan(first, count);
    if (count == 0 || parts.front().history) continue;
    const bool fits = count <= Shard::most_parts && !step.kernel->traits.couples_heads &&
                      std::all_of(parts.begin(), parts.end(), [](const StatePart& part) {
                        return part.axes.size() > 1 && (part.axes[1] == 'H' || part.axes[1] == 'G');
                      });
    const auto single = [](const StatePart& part) { return part.type == Type::f32 && is_matrix(part); };
    if (!fits || std::none_of(parts.begin(), parts.end(), single)) continue;
    if (std::any_of(parts.begin(), parts.end(), [](const StatePart& part) { return part.type == Type::f64; }))
      continue;
    for (StatePart& part : parts)
      if (single(part)) part.type = type;
    step.compact = some = true;
  }
  if (!some)
    refuse(
        "what " + body.name + " keeps (" + parts_named(p.states) +
        ") has no matrices of floats for each head: solvers keep double, lists of pairs have i8, f16 and bf16 where "
        "attention reads them, networks and levels stay as they are");
}

std::size_t panel_bytes(const Plan::Body& body, const Step& step) {
  if (!step.compact) return 0;
  Arena arena;
  const std::span<const StatePart> parts = parts_of(body, step);
  const Size groups = groups_together(body, parts);
  for (const StatePart& part : parts)
    if (is_compact(part)) arena.take<float>(static_cast<Size>(numbers(part)) / body.shape.key_heads * groups);
  return arena.bytes();
}

Status forward_compact(const Plan::Body& body, const Step& step, const Binding<float>& b, State state, Form form,
                       Workspace work) noexcept {
  const HalfSimd& convert = half_simd(*body.simd_f32);
  const std::span<const StatePart> parts = parts_of(body, step);
  const std::size_t N = b.sequences.size();
  const int G = body.shape.key_heads, together = groups_together(body, parts), panels = (G + together - 1) / together;
  Arena arena(work);
  std::int64_t* const counts = arena.take<std::int64_t>(static_cast<Size>(N) * panels);
  const bool own_counts = body.has_counts();
  for (int i = 0; own_counts && i < panels; ++i)
    std::copy_n(body.counts(state), N, counts + static_cast<std::size_t>(i) * N);
  const int workers = is_much_work(body, step, b, state) ? workers_of(body, step) : 1;
  const Workspace scratch = arena.rest();
  threads::Crew crew = body.crew();
  crew.threads = workers;

  Answers answers;
  auto task = [&](int i, int worker) {
    const std::size_t n = static_cast<std::size_t>(i / panels);
    const int panel = i % panels;
    if (b.sequences[n].begin == b.sequences[n].end) return;
    Arena own(workers == 1 ? scratch : scratch_of(scratch, worker, workers));
    Shard share;
    share.first_sequence = n, share.sequences = 1, share.copied = true;
    share.first_group = panel * together, share.groups = std::min(together, G - share.first_group);
    if (own_counts) share.counts = counts + static_cast<std::size_t>(panel) * N + n;
    struct Piece {
      float* panel;
      std::uint16_t* kept;
      Size first, count;
    };
    std::array<Piece, Shard::most_parts> pieces{};
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const Size all = static_cast<Size>(numbers(parts[part])), one = all / G;
      const StatePlace place = body.state_place(state, step.state + static_cast<int>(part));
      std::byte* const at = static_cast<std::byte*>(state.data) + place.offset;
      const Size first = share.first_group * one, skip = static_cast<Size>(n) * all + first;
      if (!is_compact(parts[part])) {
        share.parts[part] = at + skip * static_cast<Size>(size_of(parts[part].type));
        continue;
      }
      Piece& piece = pieces[part];
      piece = {own.take<float>(one * together), reinterpret_cast<std::uint16_t*>(at) + skip, first,
               one * share.groups};
      convert.widen_bf16(piece.count, piece.kept, piece.panel);
      share.parts[part] = piece.panel;
    }
    answers.add(
        step.kernel->calls<float>().forward(KernelArgs<float>(body, step, b, true, share), state, form, own.rest()));
    const std::int64_t token = body.seen(state)[n] + (b.earlier ? b.earlier[n] : 0);
    for (std::size_t part = 0; part < parts.size(); ++part)
      if (pieces[part].panel)
        convert.round_bf16(pieces[part].count, pieces[part].panel, seed_of(token, part),
                           static_cast<std::uint32_t>(pieces[part].first), pieces[part].kept);
  };
  const int tasks = static_cast<int>(N) * panels;
  if (workers == 1)
    for (int i = 0; i < tasks; ++i) task(i, 0);
  else threads::for_each(crew, tasks, task);
  if (own_counts) std::copy_n(counts, N, body.counts(state));
  return answers.worst();
}

}  // namespace ttr
