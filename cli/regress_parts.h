// The parts of `ttr regress`: a layer that lives on a stream, and losses that are summed up in constant memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "archive.h"
#include "interval.h"
#include "json.h"
#include "regress.h"
#include "regress_ridge.h"
#include "row_times.h"
#include "ttr/plan.h"
#include "ttr/stream.h"

namespace ttr::cli {

/// Bytes aligned for kernels.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  Buffer(const Buffer& other);
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    data_ = std::move(other.data_), size_ = std::exchange(other.size_, 0);
    return *this;
  }
  std::byte* data() const { return data_.get(); }
  void archive(Archive& a);
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};

/// Rows in the order of the stream. Row r first learns the pair (keys, values) if there is one, then is asked with
/// `queries`.
struct Block {
  int key_dim = 0, value_dim = 0;
  std::size_t rows = 0;
  std::vector<double> keys, values, queries;  // [rows, K], [rows, V], [rows, K]
  std::vector<char> has_pair;
  std::vector<double> weights;  // [rows], of the pairs; empty: all 1
  /// Whether a row without a pair may follow, so that the state before this one is needed again; empty: none does.
  std::vector<char> may_be_asked_again;
  void archive(Archive& a) {
    a(key_dim, value_dim, rows, keys, values, queries, has_pair, weights, may_be_asked_again);
  }
  bool asked_again(std::size_t r) const { return !may_be_asked_again.empty() && may_be_asked_again[r] != 0; }
};

/// The inputs of a plan for rows of a stream; double, one sequence, one head.
class StreamInputs {
 public:
  /// Throws Error if the plan has an input that `inputs` does not name.
  StreamInputs(const ttr::Plan& plan, const std::string& name, const std::vector<StreamInput>& inputs);
  /// The tensors for consecutive rows [rows, K], [rows, K], [rows, V]; valid until the next call.
  const Inputs& rows(std::size_t count, const double* query, const double* key, const double* value);

 private:
  struct Fed {
    StreamInput input;
    std::size_t per_row;          // numbers of a row; of all rows if there is no axis of time
    int time_axis;                // -1: none
    std::ptrdiff_t per_time;      // its extent in a row: a layer may take several tokens for one
    bool as_it_is;                // the tensor is the row itself
    std::vector<double> numbers;  // of one row, then of as many as a call has
    std::vector<double> map;      // of scores and shares, [per_row, K]
  };
  void fill(Fed& fed, const double* from, double* to) const;

  int key_dim_, value_dim_;
  std::vector<Fed> fed_;
  Inputs tensors_;
};

/// One layer with its state; double precision, one sequence, one head.
class StreamLayer {
 public:
  /// `text`: a layer name, a name with settings, or a recipe. Throws Error.
  /// `rule`: of its ridge; the one that so many keys have today if it is left out.
  StreamLayer(const std::string& text, int key_dim, int value_dim, std::optional<RidgeRule> rule = {});
  /// Bytes that it would take; nothing is taken.
  struct Need {
    double state = 0, work = 0, inputs = 0;
  };
  static Need need(const std::string& text, int key_dim, int value_dim);
  /// From now on run() says how uncertain an answer is (interval.h). Throws Error if the layer cannot.
  const ErrorVariance& track_uncertainty(std::int64_t ahead);
  /// Predictions [rows, V]; rows before the first pair get 0. A layer that has left the numbers, or cannot go on, gives
  /// NaN. `uncertainties` [rows]: if they are tracked.
  void run(const Block& block, double* predictions, Uncertainty* uncertainties = nullptr);

  /// Gives back its memory: it will not run.
  void release() { state_ = Buffer(), work_ = Buffer(); }
  /// A fresh start, as if it had never run; its time goes on.
  void forget();
  /// Learns the pairs of a block again; nobody asks, and its time stands still.
  void learn_again(const Block& block);

  /// What it has learned.
  void archive(Archive& a);

  /// Whether its answers are a linear map of the query.
  bool is_linear() const;
  /// That map as it is now [K, V]; empty before the first pair, and if the state before the newest pair was not kept
  /// (Block::may_be_asked_again).
  std::vector<double> map();

  /// Empty, or the sentence that says why the layer cannot go on.
  const std::string& failure() const { return failure_; }
  /// Whether the answer solves a linear least-squares problem, which does not care how large a key is but for the ridge.
  bool solves() const { return solves_; }
  /// Whether a pair times the root of its weight counts as much as the weight says (regress_units.h).
  bool takes_weights() const { return takes_weights_; }
  const std::string& name() const { return name_; }     // as the user wrote it
  const StreamText& stream() const { return stream_; }  // what runs
  const std::string& recipe() const { return stream_.recipe; }
  std::string kernel() const { return plan_.kernel(); }
  std::size_t state_bytes() const { return state_.size(); }
  /// Of its own, for all rows: as many times the median row (row_times.h).
  double seconds() const { return times_.median() * times_.rows(); }

 private:
  bool enlarge(Buffer& state);
  // The rows [first, first + count) of a block, which all have a pair, in one call; false if that failed, and nothing is
  // changed then.
  bool run_together(const Block& block, std::size_t first, std::size_t count, double* predictions);
  Status step(const Inputs& in, Outputs& out, Buffer& state);
  void make_workspace(std::int64_t capacity);
  // The answer to a row that comes with nothing new to learn: the newest pair is learned once more, on a copy of what the
  // state was before it. A query leaves no trace in a state, so the answer is that of the state as it is.
  Uncertainty ask_again(const double* query, Outputs& out, bool uncertain);

  std::string name_;
  StreamText stream_;
  RidgeRule rule_;
  ttr::Plan plan_;
  StreamInputs inputs_;
  std::optional<RenewedRidge> renewed_;
  std::optional<ErrorVariance> variance_;
  bool solves_ = false, takes_weights_ = false;
  bool fixed_state_ = false;  // its size does not depend on how many pairs there are
  Buffer state_, work_, before_, again_, kept_;
  std::size_t together_ = 0;                   // rows of a call that work_ has room for
  std::vector<double> last_key_, last_value_;  // the pair learned after before_
  std::int64_t capacity_ = 256;
  std::int64_t ahead_ = 1;
  bool lost_ = false;
  std::string failure_;
  RowTimes times_;
  std::vector<double> spare_;
  std::vector<Uncertainty> spare_uncertainties_;
};

/// What ran under a layer's name, for tables: its recipe, the inputs of its own, what was changed, and where it ran if
/// that was the oracle.
std::string what_ran(const StreamText& stream, const std::string& kernel);

/// The two kinds of run; called by run_regress.
int run_switching(const RegressOptions&);
int run_stream(const RegressOptions&);

/// "1 row", "2 rows"
std::string counted(std::int64_t count, std::string_view what);
/// "a, b and c"
std::string join(const std::vector<std::string>& words);
/// Prints to standard output and flushes; false if nobody reads any more.
bool print_out(std::string_view text);

}  // namespace ttr::cli
