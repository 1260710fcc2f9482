// `--watch`: the last rows as a plot in the terminal while the stream runs, drawn over itself a few times a second. Where
// standard error is no terminal the plot is printed once, at the end.
#pragma once

#include <chrono>
#include <string>

namespace ttr::cli {

class Stream;

class Watch {
 public:
  /// Draws if it is time.
  void draw(const Stream& stream);
  /// The last picture, which stays.
  void finish(const Stream& stream);

 private:
  void show(const std::string& text);
  std::chrono::steady_clock::time_point last_{};
  int lines_ = 0;  // of the picture on the screen
};

}  // namespace ttr::cli
