// Losses: their derivative by the answer, and the weight and target by which a least-squares fit has the same derivative.
//
//   squared         1/2 |y-v|^2                       dot        -y.v
//   huber           of |y-v|, threshold c             huber_coordinate  of each entry
//   lp              sum |y-v|^p, not halved           insensitive       sum max(|y-v| - c, 0)
//   quantile        sum max(tau e, (tau-1) e), e = v - y
//   logistic        sum log(1 + e^y) - v y            cross_entropy     log sum e^y - v.y
//
// At a kink (lp with p = 1, insensitive, quantile) the derivative is the one between those of the two sides that is
// nearest to zero: 0 for a residual of zero, 0 at the edge of the tube. logistic and cross_entropy are convex for values
// of any sign; for values that are probabilities they are the log likelihood.
//
// Reweighting: for every entry omega (z - y) = -d loss / d y.
//   lp, huber, quantile   z = v, omega = psi(e)/e, where |e| is kept above eps by sqrt(e^2 + eps^2)
//   logistic              omega = tanh(y/2)/(2y) <= 1/4, z = (v - 1/2)/omega: the bound of Jaakkola and Jordan (2000),
//                         which the loss touches at y and lies below everywhere, so that no fit makes it worse
#pragma once

#include <cmath>
#include <vector>

#include "oracle/memories.h"

namespace ttr::oracle {

/// d loss / d y at the answer y to a pair whose value is v; `c` is the loss's parameter.
template <class S>
Vec<S> d_loss(const Extras& extras, const Vec<S>& y, const Vec<S>& v, const S& c) {
  using std::abs;
  using std::pow;
  using std::sqrt;
  using L = Extras::Loss;
  if (extras.loss == L::cross_entropy || extras.loss == L::logistic) {
    Vec<S> mean = y;
    if (extras.loss == L::cross_entropy) mean = softmax(y);
    else
      for (S& e : mean) e = sigmoid(e);
    for (std::size_t j = 0; j < y.size(); ++j) mean[j] -= v[j];
    return mean;
  }
  Vec<S> e(y.size());
  for (std::size_t j = 0; j < y.size(); ++j) e[j] = extras.loss == L::dot ? -v[j] : y[j] - v[j];
  switch (extras.loss) {
    case L::huber: {
      const S square = dot(e, e);
      if (value_of(square) > value_of(c) * value_of(c)) {
        const S shrink = c / sqrt(square);
        for (S& x : e) x *= shrink;
      }
      break;
    }
    case L::huber_coordinate:
      for (S& x : e)
        if (std::abs(value_of(x)) > value_of(c)) x = value_of(x) > 0 ? c : -c;
      break;
    case L::lp: {
      const double p = value_of(c);
      for (S& x : e) {
        if (value_of(x) == 0) {
          x = S(0.0);
          continue;
        }
        const S size = S(p) * pow(S(abs(x)), p - 1);
        x = value_of(x) > 0 ? size : -size;
      }
      break;
    }
    case L::insensitive:  // what is not a number stays that
      for (S& x : e)
        if (const double r = value_of(x); std::abs(r) <= value_of(c)) x = S(0.0);
        else if (r == r) x = S(r > 0 ? 1.0 : -1.0);
      break;
    case L::quantile:
      for (S& x : e)
        if (value_of(x) > 0) x = S(1.0) - c;
        else if (value_of(x) < 0) x = -c;
      break;
    default:
      break;
  }
  return e;
}

/// Whether every value channel has weights of its own.
inline bool reweighs_channels(Extras::Loss loss) {
  return loss != Extras::Loss::squared && loss != Extras::Loss::huber;
}

/// Weight and target of channel b at the answer y (all channels); `eps` keeps residuals away from zero.
template <class S>
void reweigh(const Extras& extras, const Vec<S>& y, const Vec<S>& v, std::size_t b, const S& c, double eps, S& omega,
             S& target) {
  using std::pow;
  using std::sqrt;
  using std::tanh;
  using L = Extras::Loss;
  target = v[b];
  if (extras.loss == L::logistic) {
    // tanh(x)/(4x), x = y/2; for short x the series, exact to rounding there, also in its gradient.
    const S x = S(0.5) * y[b], square = x * x;
    omega = std::abs(value_of(x)) < 1e-2
                ? S(0.25) * (S(1.0) - square * (S(1.0 / 3) - square * (S(2.0 / 15) - square * S(17.0 / 315))))
                : tanh(x) / (S(4.0) * x);
    target = (v[b] - S(0.5)) / omega;
    return;
  }
  const S e = v[b] - y[b], size = sqrt(e * e + S(eps * eps));
  switch (extras.loss) {
    case L::huber: {
      S square = 0.0;
      for (std::size_t j = 0; j < y.size(); ++j) square += (v[j] - y[j]) * (v[j] - y[j]);
      omega = value_of(square) > value_of(c) * value_of(c) ? c / sqrt(square) : S(1.0);
      return;
    }
    case L::huber_coordinate:
      omega = std::abs(value_of(e)) > value_of(c) ? (value_of(e) > 0 ? c / e : -c / e) : S(1.0);
      return;
    case L::lp:
      omega = S(value_of(c)) * pow(size, value_of(c) - 2);
      return;
    case L::quantile:
      omega = (value_of(e) > 0 ? c : S(1.0) - c) / size;
      return;
    default:
      omega = S(1.0);
  }
}

}  // namespace ttr::oracle
