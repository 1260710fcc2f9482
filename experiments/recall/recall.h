// Associative recall without training: tokens are vectors, the layer stores pairs and is asked for the value of a key.
//
//   Eq. 57-58 of arXiv 2501.12352: k_t = x_{t-1} (a short convolution with taps 1, 0), q_t = v_t = x_t, and
//   y_t = sum_{i<=t} v_i (k_i . q_t) is the sum of the tokens that followed earlier copies of x_t
//
// Tokens are rows of E [vocabulary, d]; an answer y [d] is read as the row with the largest inner product. Accuracy is the
// share of queries whose answer is read as the right token, over all rows of E and not only those that occurred.
#pragma once

#include <vector>

#include "experiment.h"

namespace ttr::recall {

using experiment::Numbers;

/// The row of `table` [rows, d] with the largest inner product, for each of the answers [n, d].
std::vector<int> read_out(const Numbers& table, const Numbers& answers, int d);

/// The share of equal entries.
double accuracy(const std::vector<int>& read, const std::vector<int>& wanted);

/// Pairs (k_i, v_i) as numbers of tokens; value -1 is a value of zero.
struct Pairs {
  std::vector<int> keys, values;
  void add(int key, int value) { keys.push_back(key), values.push_back(value); }
};

/// The five contents of a memory that the table without training compares. Cues and responses are P tokens each.
enum class Content {
  responses,           // cue -> response, each once
  bigrams,             // every pair of neighbours in c1 r1 c2 r2 ...
  bigrams_silent,      // the same, but what follows a response is stored as zero
  repeated_bigrams,    // neighbours in `time` tokens: cue, response, drawn with repeats
  repeated_responses,  // of these, cue -> response only
};
Pairs contents(Content, const std::vector<int>& cues, const std::vector<int>& responses, int time, cli::Random&);

/// Rows of E for a list of tokens; -1 gives zeros.
Numbers embed(const Numbers& table, const std::vector<int>& tokens, int d);

}  // namespace ttr::recall
