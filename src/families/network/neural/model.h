// Memories that are small networks, for the planner: which network and solver a design or a layer means, and the
// parts of its state in the order in which the kernel's calls find them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "families/network/neural/neural.h"
#include "recipe/design.h"
#include "ttr/plan.h"

namespace ttr::families {

/// The function class and loss of a design; nothing if the kernel has no such network or loss.
std::optional<NeuralModel> network_of(const Memory&, const Extras&, int key_dim, int value_dim);

/// The network and solver of a design; nothing if the kernel does not compute exactly that.
std::optional<NeuralModel> neural_model(const Design&, int key_dim, int value_dim);

/// Names of the parameters: S of a linear map; W0, b0, W1, .. ; gamma of a learned norm.
std::vector<std::string> parameter_names(const NeuralModel&, bool linear);

/// Indices of the first part of each group among the states of the step; below zero where the model has none.
struct NeuralPlaces {
  int weights = 0, start = -1, z = -1, pending = -1, gate_sums = -1, history = -1, norms = -1, count = 0;
  explicit NeuralPlaces(const NeuralModel&);
};

}  // namespace ttr::families
