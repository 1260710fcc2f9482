// `ttr layers --footprint`: the bytes that calls need, for all layers or one: the state, and the scratch of a step, of a
// forward and of a backward, as Plan::footprint says them (docs/embedding.md has the table).
//
// Of layers that keep their pairs the state has room for --time of them, and the step is the one that fills it.
#include <fmt/core.h>

#include "commands.h"
#include "json.h"
#include "text_table.h"
#include "ttr/ttr.h"

namespace ttr::cli {
namespace {

struct Row {
  std::string layer;
  std::size_t tensors = 0;  // of a call: inputs and outputs
  std::size_t state = 0, step = 0, forward = 0, backward = 0;
};

Row row_of(const std::string& layer, const LayersOptions& o) {
  Options options;
  options.threads = o.threads;
  const Plan p = plan(layer, {.heads = o.heads, .key_dim = o.key_dim, .value_dim = o.value_dim}, options);
  Row row{layer};
  const auto add = [&](const auto& infos) {
    for (const InputInfo& info : infos) {
      std::size_t numbers = sizeof(float);
      for (const std::ptrdiff_t extent : p.extents(info.shape, o.time)) numbers *= static_cast<std::size_t>(extent);
      row.tensors += numbers;
    }
  };
  add(p.inputs()), add(p.outputs());
  const Footprint bytes = p.footprint(o.time);
  row.state = bytes.state, row.forward = bytes.workspace, row.backward = bytes.backward;
  if (p.options().causal) row.step = p.footprint(o.time, Form::step).workspace;
  return row;
}

}  // namespace

int run_footprint(const LayersOptions& o) {
  if (o.time < 1) throw Error(fmt::format("--time is {}; it must be at least 1", o.time), "--time");
  std::vector<Row> rows;
  if (!o.name.empty()) rows.push_back(row_of(o.name, o));
  else
    for (const LayerInfo& info : layers()) rows.push_back(row_of(info.name, o));
  if (o.json) {
    Json list = Json::array();
    for (const Row& row : rows) {
      Json j = Json::object();
      j.set("layer", row.layer).set("time", o.time).set("heads", o.heads).set("key_dim", o.key_dim);
      j.set("value_dim", o.value_dim).set("threads", o.threads).set("tensor_bytes", row.tensors);
      j.set("state_bytes", row.state).set("step_bytes", row.step).set("forward_bytes", row.forward);
      list.push(j.set("backward_bytes", row.backward));
    }
    fmt::print("{}\n", list.dump());
    return 0;
  }
  TextTable table({"layer", "tensors", "state", "step", "forward", "backward"});
  const auto cell = [](std::size_t bytes) { return bytes == 0 ? "-" : short_bytes(static_cast<double>(bytes)); };
  for (const Row& row : rows)
    table.row({row.layer, cell(row.tensors), cell(row.state), cell(row.step), cell(row.forward), cell(row.backward)});
  fmt::print("{}", table.text());
  fmt::print(
      "\nfloat plans at B=1 T={} H={} K={} V={}, threads {}. tensors: inputs and outputs of a call, which the caller "
      "has; "
      "step,\nforward, backward: scratch of these calls, on top of tensors and state.\n",
      o.time, o.heads, o.key_dim, o.value_dim, o.threads);
  return 0;
}

}  // namespace ttr::cli
