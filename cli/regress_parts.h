// The parts of `ttr regress`: a layer that lives on a stream, and losses that are summed up in constant memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interval.h"
#include "json.h"
#include "regress.h"
#include "ttr/plan.h"
#include "ttr/stream.h"

namespace ttr::cli {

/// Bytes aligned for kernels.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  std::byte* data() const { return data_.get(); }
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
};

/// The inputs of a plan for one row of a stream; double, one sequence, one head.
class StreamInputs {
 public:
  /// Throws Error if the plan has an input that `inputs` does not name.
  StreamInputs(const ttr::Plan& plan, const std::string& name, const std::vector<StreamInput>& inputs);
  /// The tensors for a row, valid until the next call.
  const Inputs& row(const double* query, const double* key, const double* value);

 private:
  struct Fed {
    StreamInput input;
    std::vector<double> numbers;  // empty: the row itself
    std::vector<double> map;      // of scores and shares, [numbers, K]
  };
  void fill(Fed& fed, const double* from) const;

  int key_dim_, value_dim_;
  std::vector<Fed> fed_;
  Inputs tensors_;
};

/// One layer with its state; double precision, one sequence, one head.
class StreamLayer {
 public:
  /// `text`: a layer name, a name with settings, or a recipe. Throws Error.
  StreamLayer(const std::string& text, int key_dim, int value_dim);
  /// From now on run() says how uncertain an answer is (interval.h). Throws Error if the layer cannot.
  const ErrorVariance& track_uncertainty(std::int64_t ahead);
  /// Predictions [rows, V]; rows before the first pair get 0. A layer that has left the numbers gives NaN.
  /// `uncertainties` [rows]: if they are tracked.
  void run(const Block& block, double* predictions, Uncertainty* uncertainties = nullptr);

  const std::string& name() const { return name_; }     // as the user wrote it
  const StreamText& stream() const { return stream_; }  // what runs
  const std::string& recipe() const { return stream_.recipe; }
  std::string kernel() const { return plan_.kernel(); }
  std::size_t state_bytes() const { return state_.size(); }
  double seconds() const { return seconds_; }

 private:
  bool enlarge();

  std::string name_;
  StreamText stream_;
  ttr::Plan plan_;
  StreamInputs inputs_;
  std::optional<ErrorVariance> variance_;
  Buffer state_, work_;
  std::int64_t capacity_ = 256;
  bool started_ = false, lost_ = false;
  double seconds_ = 0;
};

/// What ran under a layer's name, for tables: its recipe, the inputs of its own, what was changed, and where it ran if
/// that was the oracle.
std::string what_ran(const StreamText& stream, const std::string& kernel);

/// Means over consecutive windows of equal width. When there are more than `most` of them, neighbours are merged and
/// the width doubles; so memory is bounded whatever the length of the stream.
class Windows {
 public:
  Windows(std::int64_t width, std::size_t most) : width_(width), most_(most) {}
  void add(double loss);
  std::int64_t width() const { return width_; }
  std::size_t size() const { return sums_.size(); }
  double mean(std::size_t window) const;
  std::int64_t count(std::size_t window) const;
  /// The last window that is full; the last one if none is.
  double last_full() const;

 private:
  std::int64_t width_, in_last_ = 0;
  std::size_t most_;
  std::vector<double> sums_;
};

/// What is known of one layer's predictions.
struct Score {
  std::string name, recipe, kernel;
  std::string ran;  // the recipe, and what there is to say about it
  StreamText stream;
  Windows windows, curve;
  double squared_error = 0;  // summed over rows and values
  std::int64_t rows = 0;
  std::int64_t diverged_at = 0;  // the first row whose prediction was not finite; 0: none
  double us_per_row = 0;
  std::size_t state_bytes = 0;

  Score(std::string name, std::int64_t window, std::size_t most);
  void add(std::int64_t row, const double* prediction, const double* actual, int values);
};

/// Variance of the actual values, for R2.
class Spread {
 public:
  explicit Spread(int values) : mean_(values) {}
  void add(const double* values);
  double sum_of_squares() const { return sum_; }  // around the mean, over all columns
  /// 1 - error / spread; NaN if the values never change.
  double r2(double squared_error) const;

 private:
  std::vector<double> mean_;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

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
