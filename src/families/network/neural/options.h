// What a named layer's memory does beyond its recipe (neural.h has the words).
#pragma once

namespace ttr::families {

struct NeuralOptions {
  bool block = false, lazy = false, learned_norm = false, skip_sum = false;
  bool scheduled = false;      // LaCT's coefficients of the orthogonalised update
  bool sign_loss = false;      // Huber with the sign of the error beyond the threshold
  bool mean_gradient = false;  // the loss is a mean over the channels of a value
  bool zero_start = false;     // a fresh state has weights of zero
  int step_every = 1, rates = 1;
  int batch = -1;  // below zero: that of the recipe
  double norm_eps = 0, gradient_scale = 1;
};

}  // namespace ttr::families
