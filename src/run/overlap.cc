#include "run/overlap.h"

namespace ttr {
namespace {

std::ptrdiff_t stride_in_bytes(const ConstTensor& t, int d) noexcept {
  const std::ptrdiff_t stride = t.stride[static_cast<std::size_t>(d)] * static_cast<std::ptrdiff_t>(size_of(t.type));
  return stride < 0 ? -stride : stride;
}
bool counts(const ConstTensor& t, int d) noexcept { return t.extent[static_cast<std::size_t>(d)] > 1; }

// Bytes from the first to behind the last of the axes whose stride is below S; more than S if one above it does not keep
// the place within S.
std::ptrdiff_t span_within(const ConstTensor& t, std::ptrdiff_t S) noexcept {
  std::ptrdiff_t span = static_cast<std::ptrdiff_t>(size_of(t.type));
  for (int d = 0; d < t.rank; ++d) {
    if (!counts(t, d)) continue;
    const std::ptrdiff_t stride = stride_in_bytes(t, d);
    if (stride < S) span += (t.extent[static_cast<std::size_t>(d)] - 1) * stride;
    else if (stride % S != 0) return S + 1;
  }
  return span;
}

bool has_stride(const ConstTensor& t, std::ptrdiff_t S) noexcept {
  for (int d = 0; d < t.rank; ++d)
    if (counts(t, d) && stride_in_bytes(t, d) == S) return true;
  return false;
}

}  // namespace

bool share_memory(const ConstTensor& a, const ConstTensor& b) noexcept {
  const ByteRange range_a = range_of(a), range_b = range_of(b);
  if (!overlap(range_a, range_b)) return false;
  for (int d = 0; d < a.rank; ++d) {
    const std::ptrdiff_t S = counts(a, d) ? stride_in_bytes(a, d) : 0;
    if (S == 0 || !has_stride(b, S)) continue;
    const std::ptrdiff_t span_a = span_within(a, S), span_b = span_within(b, S);
    if (span_a > S || span_b > S) continue;
    const std::ptrdiff_t from = ((range_b.begin - range_a.begin) % S + S) % S;  // where b begins, counted from a
    if (from >= span_a && from + span_b <= S) return false;
  }
  return true;
}

}  // namespace ttr
