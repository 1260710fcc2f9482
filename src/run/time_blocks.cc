#include "run/time_blocks.h"

#include <numeric>

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

std::ptrdiff_t block_length(const Plan::Body& body, Form form) {
  constexpr std::ptrdiff_t cache = 256 * 1024, least = 64, most = 1024, of_scan = 16 * 1024;
  const std::ptrdiff_t unit = time_unit(body);
  std::ptrdiff_t bytes = 1;
  for (const Value& v : body.pipeline.values)
    if (v.from == Value::From::step)
      bytes += static_cast<std::ptrdiff_t>(body.elements(v.axes, 1, 1) * size_of(body.options.type));
  const std::ptrdiff_t fits = form == Form::scan ? of_scan
                              : grows(body)      ? most
                                                 : std::clamp(cache / bytes, least, most);
  return (fits + unit - 1) / unit * unit;
}

}  // namespace ttr
