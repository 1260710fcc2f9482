#include "run/time_blocks.h"

#include <numeric>
#include <optional>

#include "families/common/choice.h"
#include "families/family.h"

namespace ttr {

bool goes_in_blocks(const Plan::Body& body, Form form) {
  if (form == Form::parallel || body.pipeline.noncausal || body.pipeline.history) return false;
  for (const Step& step : body.pipeline.steps) {
    if (step.kernel && step.kernel->traits.literal) return false;
    if (step.kernel || !prepare::depends_on_time_index(step.op)) continue;
    if (step.operands.size() < 2 || step.operands[1] < 0 || value(body, step.operands[1]).from != Value::From::step)
      return false;
  }
  return true;
}

bool grows(const Plan::Body& body) {
  return std::any_of(body.pipeline.steps.begin(), body.pipeline.steps.end(),
                     [](const Step& step) { return step.kernel && step.kernel->traits.grows_with_time; });
}

std::ptrdiff_t time_unit(const Plan::Body& body) {
  std::ptrdiff_t unit = body.options.chunk > 0 ? body.options.chunk : families::whole_chunks;
  for (const Step& step : body.pipeline.steps)
    if (step.kernel && step.kernel->time_unit) unit = std::lcm(unit, std::ptrdiff_t{step.kernel->time_unit(step)});
  return unit;
}

namespace {

// Whole chunks of the form that the kernels of the plan take: a part of time_unit().
std::ptrdiff_t chunk_unit(const Plan::Body& body) {
  if (body.options.chunk > 0) return time_unit(body);
  std::ptrdiff_t unit = 1;
  const int vector_bytes = body.options.type == Type::f32 ? body.simd_f32->lanes * 4 : body.simd_f64->lanes * 8;
  for (const Step& step : body.pipeline.steps) {
    if (!step.kernel) continue;
    if (step.kernel->time_unit || !step.kernel->tuning) return time_unit(body);
    const std::optional<families::Tuned> rows = step.kernel->tuning(step);
    const int k = step.operands[Slot::k], v = step.operands[Slot::v];
    if (!rows || k < 0 || v < 0) return time_unit(body);
    const int K = width(body, k), V = width(body, v);
    unit = std::lcm(unit, std::ptrdiff_t{families::choice(*rows, vector_bytes, K, V, false).chunk});
  }
  return unit;
}

std::ptrdiff_t whole(std::ptrdiff_t tokens, std::ptrdiff_t unit) { return (tokens + unit - 1) / unit * unit; }

// Bytes of a token of these values for all sequences.
template <class Take>
std::ptrdiff_t token_bytes(const Plan::Body& body, Take&& take) {
  std::ptrdiff_t bytes = 1;
  for (const Value& v : body.pipeline.values)
    if (take(v)) bytes += static_cast<std::ptrdiff_t>(body.elements(v.axes, 1, 1) * size_of(body.options.type));
  return bytes;
}

constexpr std::ptrdiff_t cache = 256 * 1024, most = 1024, of_scan = 16 * 1024;

}  // namespace

std::ptrdiff_t block_length(const Plan::Body& body, Form form) {
  constexpr std::ptrdiff_t least = 64;
  const std::ptrdiff_t bytes = token_bytes(body, [](const Value& v) { return v.from == Value::From::step; });
  const std::ptrdiff_t fits = form == Form::scan ? of_scan
                              : grows(body)      ? most
                                                 : std::clamp(cache / bytes, least, most);
  return whole(fits, time_unit(body));
}

std::ptrdiff_t half_block_length(const Plan::Body& body, Form form, std::span<const bool> copied) {
  const std::ptrdiff_t longest = block_length(body, form);
  if (form == Form::scan || grows(body)) return longest;
  const Value* const first = body.pipeline.values.data();
  const std::ptrdiff_t bytes = token_bytes(body, [&](const Value& v) {
    return v.places.time >= 0 && (v.from == Value::From::step || copied[static_cast<std::size_t>(&v - first)]);
  });
  return std::min(longest, whole(std::clamp(cache / bytes, least_half_block, most), chunk_unit(body)));
}

}  // namespace ttr
