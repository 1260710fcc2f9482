// What elementwise.cc must know of elementwise_selective.cc: how much scratch it takes.
#pragma once

#include <cstddef>

#include "ttr/plan.h"

namespace ttr::families::elementwise {

template <class T>
std::size_t selective_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, Form, int chunk, bool backward,
                            int workers) noexcept;

}  // namespace ttr::families::elementwise
