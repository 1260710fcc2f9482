// A text as it is made, cut where one of several stop texts begins: what may be the beginning of one waits, and so does half of a
// character of UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ttr::cli {

class StopText {
 public:
  explicit StopText(std::vector<std::string> stop);
  /// What has become certain by this piece. After a stop text has come nothing more does.
  std::string add(std::string_view piece);
  /// What still waits: the text has ended without a stop text.
  std::string rest();
  bool stopped() const { return stopped_; }
  const std::string& text() const { return made_; }  // without the stop text

 private:
  std::string given(std::size_t end);
  std::vector<std::string> stop_;
  std::string made_;
  std::size_t longest_ = 0, given_ = 0;
  bool stopped_ = false;
};

}  // namespace ttr::cli
