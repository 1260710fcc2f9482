// Gates of a case of `ttr bench`: how strongly a layer forgets decides what its kernels can do.
//
//   gentle    as the table of the layer's inputs says: mostly near 0
//   mixed     uniform in [-8, 0] for every token and channel
//   strong    all -5
//   channel   gentle, but the first of every 64 numbers of a token is -5
//   token     gentle, but one token in 64 is -20
//   NUMBER    all of them, at most 0
//   FILE      .safetensors: the tensor with the gate's name, or the only one, over and over in its order
//
// A layer whose gate is dt A (Mamba-2) gets A = -1 and dt = -g.
#pragma once

#include <string>
#include <vector>

#include "ttr/ttr.h"

namespace ttr::cli {

class GateKind {
 public:
  /// Throws Error, also for a file that cannot be read.
  explicit GateKind(const std::string& text);
  bool gentle() const { return kind_ == Kind::gentle; }
  /// The numbers of an input [.., T, ..] of `time` tokens, drawn already, with these gates if it is one; the first tokens
  /// do not depend on `time`.
  void apply(const Plan&, const InputInfo&, std::int64_t time, std::vector<double>& numbers) const;
  /// Whether the layer has gates that can be chosen.
  static bool has_gates(const Plan&);

 private:
  enum class Kind { gentle, mixed, channel, token, same, file };
  Kind kind_ = Kind::gentle;
  double same_ = 0;
  std::string path_;
  std::vector<std::pair<std::string, std::vector<double>>> file_;
};

}  // namespace ttr::cli
