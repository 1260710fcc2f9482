// One row per kernel: its family, its exact forms, and why it lacks the others.
#include "plan/pipeline.h"

namespace ttr {
namespace {

constexpr std::string_view all = "chunk parallel scan", no_scan = "chunk parallel", only_scan = "scan", none = "";
constexpr std::string_view elementwise_state =
    "the state is elementwise, so a block of tokens holds no matrix product; the scan is the form for long sequences";
constexpr std::string_view own_system = "every token solves its own system";
constexpr std::string_view covariance =
    "the gain of a token depends on the covariance that all tokens before it left; blocks carry it";
constexpr std::string_view list_of_pairs = "the state is the list of pairs, which is not composed but read";

constexpr KernelFacts rows[] = {
    {KernelKind::decay, "decay", all, ""},
    {KernelKind::delta, "delta", all, ""},
    {KernelKind::gated, "gated", all, ""},
    {KernelKind::dplr, "dplr", all, ""},
    {KernelKind::momentum, "momentum", all, ""},
    {KernelKind::projection, "projection", only_scan,
     "the step of a token needs the inverse of its own window of keys"},
    {KernelKind::oja, "oja", all, ""},
    {KernelKind::log_linear, "log_linear", no_scan,
     "the partition of the past changes with every token, so segments do not compose"},
    {KernelKind::stabilised, "stabilised", no_scan,
     "the running maximum makes the map of a segment depend on what came before; chunks carry it"},
    {KernelKind::channel, "elementwise", only_scan, elementwise_state},
    {KernelKind::rotating, "elementwise", only_scan,
     "the gates are complex, so a block would need complex products; the scan is exact"},
    {KernelKind::selective, "elementwise", only_scan,
     "every entry of the state has a gate of its own, and a gate that is no product of a row and a column has no "
     "matrix form; the scan is exact"},
    {KernelKind::weighted_mean, "weighted_mean", only_scan, elementwise_state},
    {KernelKind::least_squares, "least_squares", none, own_system},
    {KernelKind::givens, "givens", none, own_system},
    {KernelKind::iterative, "iterative", none, own_system},
    {KernelKind::stepped, "iterative", no_scan, "every token solves its own system; segments do not compose"},
    {KernelKind::kalman, "kalman", "chunk", covariance},
    {KernelKind::woodbury, "kalman", "chunk", covariance},
    {KernelKind::window, "window", none, own_system},
    {KernelKind::attention, "attention", no_scan, list_of_pairs},
    {KernelKind::local_linear, "local_linear", no_scan, list_of_pairs},
    {KernelKind::path_attention, "path_attention", no_scan, list_of_pairs},
    {KernelKind::deltaformer, "deltaformer", no_scan, list_of_pairs},
    {KernelKind::kernel_regression, "kernel_regression", no_scan, list_of_pairs},
    {KernelKind::landmarks, "gaussian_attention", no_scan, list_of_pairs},
    {KernelKind::whole, "whole", no_scan, list_of_pairs},
    {KernelKind::neural, "neural", "chunk",
     "the memory is no linear function of its past: segments do not compose, and a block is part of the model"},
    {KernelKind::arrangement, "arrangement", "chunk",
     "the memory is no linear function of its past: segments do not compose, and a block is part of the model"},
    {KernelKind::carry, "running", all, ""},  // one loop serves every form
    {KernelKind::convolution, "running", all, ""},
    {KernelKind::oracle, "oracle", none, "the literal solver goes token by token"},
};

}  // namespace

const KernelFacts& facts_of(KernelKind kind) noexcept {
  for (const KernelFacts& row : rows)
    if (row.kind == kind) return row;
  return rows[std::size(rows) - 1];
}

bool has_form(KernelKind kind, Form form) noexcept {
  return form == Form::step || form == Form::recurrent ||
         facts_of(kind).forms.find(to_string(form)) != std::string_view::npos;
}

}  // namespace ttr
