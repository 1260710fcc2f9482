// What changes the parameters of a model (ttr/model.h) by its gradients.
//
//   ttr::model::OptimiserConfig how;
//   how.method = "adamw", how.rate = 3e-3, how.warmup = 100, how.steps = 2000;
//   ttr::model::Optimiser<float> optimiser(model.parameters(), how);
//   session.gradient(batch);
//   optimiser.step(model.values(), session.gradients());
//
// Methods, with w a parameter, g its gradient (clipped), e the rate of the step and d the decay; d acts on matrices alone.
//
//   adamw   m = b1 m + (1-b1) g ; v = b2 v + (1-b2) g^2 ; w -= e (m / (1-b1^t) / (sqrt(v / (1-b2^t)) + eps) + d w)
//           Loshchilov, Hutter 2017, arXiv 1711.05101
//   sgd     u = mu u + g + d w ; w -= e u   (nesterov: w -= e (g + d w + mu u))
//   muon    u = mu u + g ; O = orthogonal factor of g + mu u by five Newton-Schulz steps, a X + b XX'X + c XX'XX'X with
//           (a, b, c) = (3.4445, -4.7750, 2.0315) ; w -= e (0.2 sqrt(max(rows, columns)) O + d w): matrices that are
//           neither an embedding nor a head; the rest by adamw. Jordan et al. 2024; the factor is that of Liu et al. 2025,
//           arXiv 2502.16982. Matrices that lie side by side in one tensor (Parameter::columns) are taken one by one.
//   soap    Adam in the eigenbasis of Shampoo: L = b L + (1-b) g g', R = b R + (1-b) g'g ; Q_L, Q_R orthogonal, by one step
//           of orthogonal iteration every `every` steps ; Adam on Q_L' g Q_R, turned back. The first step only begins L
//           and R. Vyas et al. 2024, arXiv 2409.11321. Sides longer than `longest` are not turned; what is no matrix: adamw.
//   shampoo L = b L + (1-b) g g', R likewise, divided by 1 - b^t ; m = b1 m + (1-b1) g, divided by 1 - b1^t ;
//           P = L^-1/4 m R^-1/4 ; w -= e (|a| / |P| P + d w), where a is Adam's step (graft = adam), m (graft = sgd), or the
//           factor is 1 (none). Roots are made anew every `every` steps, of L + damping trace(L)/n I, by the coupled Newton
//           iteration in double. A side longer than `longest` has no factor and the other one -1/2; what is no matrix: adamw.
//           Gupta et al. 2018, arXiv 1802.09568, with b = 1 (then L = L + g g'), b1 = 0 and graft = none; there the
//           damping is a multiple of I that is there at first. Grafting: Anil et al. 2020, arXiv 2002.09018.
//
// Groups give some parameters a rate and a decay of their own: "embedding: rate=0.1, decay=0; *.norm: rate=2". A pattern is
// the name of a parameter, where * stands for any letters; rate is a factor, decay replaces that of the configuration, for
// vectors too. The last group that fits counts. A pattern that fits nothing is an error.
//
// The rate of step s (from 0) is  rate (s+1)/warmup  during the warm-up, then `schedule` until `steps`: constant, or from 1
// to `last` of it by a cosine or a line. Sums and moments are kept in the type of the parameters, norms in double, and the
// bits do not depend on threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/export.h"
#include "ttr/model.h"

namespace ttr::model {

struct OptimiserConfig {
  std::string method = "adamw";  // adamw, sgd, muon, soap, shampoo
  double rate = 1e-3, decay = 0.1;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // adamw, and Adam inside muon, soap and shampoo
  double momentum = 0.95;                         // sgd, muon
  bool nesterov = false;                          // sgd
  double statistics = 0.95;                       // b of soap and shampoo
  int every = 10, longest = 1024;                 // soap, shampoo
  double damping = 1e-6;                          // shampoo
  std::string graft = "adam";                     // shampoo: adam, sgd, none
  std::string groups;                             // rates and decays of some parameters
  std::string schedule = "cosine";                // cosine, linear, constant
  int warmup = 0, steps = 1000;
  double last = 0;  // share of the rate at the end
  double clip = 0;  // largest length of the gradient; 0: any
  double ema = 0;   // factor of a running mean of the parameters; 0: none
};
TTR_MODEL_API std::string to_string(const OptimiserConfig&);
TTR_MODEL_API OptimiserConfig parse_optimiser(std::string_view);

/// The rate of a step, from 0.
TTR_MODEL_API double rate_at(const OptimiserConfig&, std::int64_t step);

template <class T>
class TTR_MODEL_API Optimiser {
 public:
  /// Throws Error for what a configuration cannot be. `part`: the parameters are some of a model's, whose patterns may fit
  /// none of them.
  Optimiser(std::span<const Parameter>, const OptimiserConfig&, int threads = 1, bool part = false);
  ~Optimiser();
  Optimiser(Optimiser&&) noexcept;

  /// One step; returns the length of the gradient before clipping. A gradient that is not finite changes nothing.
  double step(std::span<T> values, std::span<const T> gradients);
  /// The same with the length of the gradient that this one is a part of.
  double step(std::span<T> values, std::span<const T> gradients, double length);
  /// Sums of squares of a gradient, one for each parameter that is trained; the root of their sum, in order, is its length.
  std::vector<double> squares(std::span<const T> gradients) const;
  std::int64_t steps_taken() const noexcept;
  const OptimiserConfig& config() const noexcept;
  /// The running mean of the parameters, in their order; empty without one.
  std::span<const T> mean() const noexcept;

  /// All that goes on from here, by name, for checkpoints: tensors that may be read and written, and the count.
  struct Part {
    std::string name;
    std::span<T> numbers;
  };
  std::vector<Part> state();
  void set_steps_taken(std::int64_t);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

extern template class TTR_MODEL_API Optimiser<float>;
extern template class TTR_MODEL_API Optimiser<double>;

}  // namespace ttr::model
