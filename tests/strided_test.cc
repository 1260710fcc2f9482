// run/strided.h: what is cleared is the tensor, all of it and nothing beside it, in whatever order its axes lie.
#include "run/strided.h"

#include <gtest/gtest.h>

#include <vector>

#include "ttr/view.h"

namespace {

TEST(Strided, ClearsTheTensorAlone) {
  // [2, 3, 4] with axes in every order, with and without gaps, an axis of one entry with a stride that says nothing.
  const std::ptrdiff_t shape[3] = {2, 3, 4};
  const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders)
    for (const std::ptrdiff_t gap : {0, 1, 5})
      for (const std::ptrdiff_t idle : {0, 1, 7}) {
        ttr::Tensor tensor;
        tensor.type = ttr::Type::f32, tensor.rank = 4;
        tensor.extent = {}, tensor.stride = {};
        std::ptrdiff_t step = 1 + gap;
        for (int i = 2; i >= 0; --i) {  // the last of the order lies closest together
          const auto axis = static_cast<std::size_t>(order[i]);
          tensor.extent[axis] = shape[axis], tensor.stride[axis] = step;
          step *= shape[axis], step += i == 2 ? gap : 0;
        }
        tensor.extent[3] = 1, tensor.stride[3] = idle;
        std::vector<float> data(static_cast<std::size_t>(step), 1.0f);
        tensor.data = data.data();
        ttr::clear_tensor(tensor);
        for (std::ptrdiff_t a = 0; a < 2; ++a)
          for (std::ptrdiff_t b = 0; b < 3; ++b)
            for (std::ptrdiff_t c = 0; c < 4; ++c) {
              float& one =
                  data[static_cast<std::size_t>(a * tensor.stride[0] + b * tensor.stride[1] + c * tensor.stride[2])];
              EXPECT_EQ(one, 0.0f);
              one = 1.0f;
            }
        for (const float one : data) EXPECT_EQ(one, 1.0f) << "cleared beside the tensor";
      }
}

}  // namespace
